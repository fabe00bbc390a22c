#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <csignal>

#include "bindings/bind.hpp"
#include "simd/cpu.hpp"

namespace widemargin {

namespace {

// If another process truncates a mapped file, the next read of a missing page raises SIGBUS, and nothing can be
// computed from there. A command can at least say so. The handler uses only async-signal-safe functions.
void tell_of_bus_error(int) {
    static const char message[] =
        "widemargin: a model or data file was cut short, or its disk failed, while it was in use; restore it and run "
        "the command again\n";
    const auto written = write(STDERR_FILENO, message, sizeof message - 1);
    _exit(written < 0 ? 2 : 1);
}

// From now on, SIGBUS ends the process with this message and exit code 1.
void explain_bus_errors() {
    struct sigaction action = {};
    action.sa_handler = tell_of_bus_error;
    sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

void bind_process(nb::module_ &module) {
    module.def("available_instruction_sets", &available_instruction_sets,
               "Names of this machine's vector instruction sets (avx512, avx2, neon, baseline), widest first.");
    module.def("choose_instruction_set", &choose_instruction_set,
               "Name of the set in use: the one that the environment variable WIDEMARGIN_ISA names, or the widest.\n"
               "Raises ValueError if this machine does not have the named set.");
    module.def(
        "explain_bus_errors", &explain_bus_errors,
        "From now on, a mapped file that is truncated while in use ends the process with a message and exit code 1.\n"
        "For commands; a library leaves signals to its caller.");
}

}  // namespace widemargin
