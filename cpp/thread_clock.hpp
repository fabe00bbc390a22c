// CPU time of the calling thread: what a label cost, whatever else the machine was doing.
#pragma once

#include <time.h>

namespace widemargin {

inline double thread_seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);  // POSIX: Linux and macOS
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace widemargin
