#include "bind.hpp"
#include "cpu.hpp"

namespace widemargin {

void bind_cpu(nb::module_ &module) {
    module.def("detect_instruction_set", &detect_instruction_set,
               "Name of the widest vector instruction set of this machine: avx512, avx2, neon or baseline.");
}

}  // namespace widemargin
