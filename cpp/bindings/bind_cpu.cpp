#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.hpp"
#include "bus_errors.hpp"
#include "cpu.hpp"

namespace widemargin {

void bind_cpu(nb::module_ &module) {
    module.def(
        "available_instruction_sets", &available_instruction_sets,
        "Names of this machine's vector instruction sets, of avx512, avx2, neon and baseline; the widest first.");
    module.def("choose_instruction_set", &choose_instruction_set,
               "Name of the set in use: the one that the environment variable WIDEMARGIN_ISA names, else the widest.\n"
               "ValueError when this machine does not have the one named.");
    module.def(
        "explain_bus_errors", &explain_bus_errors,
        "From now on a mapped file that is cut short while in use ends the process with a message, exit code 1.\n"
        "For commands; a library leaves signals to its caller.");
}

}  // namespace widemargin
