// A mapped file that someone else cuts short ends the process with SIGBUS at the next read of a page that is gone, and
// nothing can be computed from there. A command can at least say so: only functions that are safe in a handler here.
#pragma once

#include <unistd.h>

#include <csignal>

namespace widemargin {

inline void tell_of_bus_error(int) {
    static const char message[] =
        "widemargin: a file of the model or of the data was cut short, or its disk failed, while it was in use; "
        "restore "
        "it and run the command again\n";
    const auto written = write(STDERR_FILENO, message, sizeof message - 1);
    _exit(written < 0 ? 2 : 1);
}

// From now on SIGBUS ends the process with this message and exit code 1.
inline void explain_bus_errors() {
    struct sigaction action = {};
    action.sa_handler = tell_of_bus_error;
    sigaction(SIGBUS, &action, nullptr);
}

}  // namespace widemargin
