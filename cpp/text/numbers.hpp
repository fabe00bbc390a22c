// Parses decimal numbers: gives the nearest double, independent of the locale.
//
// Nearly all numbers in data files have at most 19 digits and a small exponent. If the digits as an integer are below
// 2^53 and the power of ten is at most 22, both are exact doubles, and one multiplication or division rounds correctly
// (W. D. Clinger, How to read floating point numbers accurately, PLDI 1990). The rest goes to std::from_chars.
//
// All functions read up to the first character that is not part of a number; the caller guarantees that there is one
// (text blocks end with a newline).
#pragma once

#include <locale.h>

#include <charconv>
#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <system_error>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

namespace widemargin {

constexpr int kMaxExactPower = 22;                          // 10^22 < 2^53 * 2^22: the last exact power of ten
constexpr std::uint64_t kMaxExactInteger = 1ull << 53;      // all integers up to here are doubles
constexpr int kMaxDigits = 19;                              // 10^19 - 1 fits 64 bits
constexpr std::uint64_t kSaturated = 1000000000000000000u;  // 10^18: larger than any allowed index
constexpr double kPowersOfTen[kMaxExactPower + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                     1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                     1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// Reads digits as an integer, saturating at `kSaturated`; moves `p` past them.
inline std::uint64_t scan_digits(const char *&p) {
    const char *begin = p;
    std::uint64_t value = 0;
    while (is_digit(*p)) value = value * 10 + static_cast<unsigned char>(*p++ - '0');
    if (p - begin < kMaxDigits) return value;
    value = 0;
    for (const char *digit = begin; digit < p; ++digit) {
        value = value * 10 + static_cast<unsigned char>(*digit - '0');
        if (value > kSaturated) value = kSaturated;
    }
    return value;
}

// For numbers out of range, and for standard libraries without from_chars for doubles.
inline double parse_with_strtod(const char *begin, const char *end) {
    static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", static_cast<locale_t>(0));
    return strtod_l(std::string(begin, end).c_str(), nullptr, c_locale);
}

inline double parse_exactly(const char *begin, const char *end) {
#if defined(__cpp_lib_to_chars)
    double value = 0;
    const auto result = std::from_chars(begin, end, value);
    if (result.ec == std::errc()) return value;
#endif
    return parse_with_strtod(begin, end);
}

// Reads the optional exponent of a number, saturating; returns false if it is malformed, as in "1e+".
inline bool scan_exponent(const char *&p, std::int64_t *exponent) {
    if (*p != 'e' && *p != 'E') return true;
    ++p;
    const bool negative = *p == '-';
    if (*p == '-' || *p == '+') ++p;
    if (!is_digit(*p)) return false;
    const auto value = static_cast<std::int64_t>(scan_digits(p));
    *exponent += negative ? -value : value;
    return true;
}

// Reads a number, [+-] digits [. digits] [e [+-] digits]; returns its end, or null if there is none. Overflow gives
// infinity.
inline const char *scan_number(const char *p, double *out) {
    const bool negative = *p == '-';
    if (*p == '-' || *p == '+') ++p;
    const char *begin = p;
    std::uint64_t digits = 0;
    while (is_digit(*p)) digits = digits * 10 + static_cast<unsigned char>(*p++ - '0');
    std::int64_t n_digits = p - begin, exponent = 0;
    if (*p == '.') {
        const char *fraction = ++p;
        while (is_digit(*p)) digits = digits * 10 + static_cast<unsigned char>(*p++ - '0');
        exponent = fraction - p;
        n_digits += p - fraction;
    }
    if (n_digits == 0 || !scan_exponent(p, &exponent)) return nullptr;
    double value;
    if (n_digits <= kMaxDigits && digits <= kMaxExactInteger && exponent >= -kMaxExactPower &&
        exponent <= kMaxExactPower) {
        value = static_cast<double>(digits);
        value = exponent < 0 ? value / kPowersOfTen[-exponent] : value * kPowersOfTen[exponent];
    } else {
        value = parse_exactly(begin, p);
    }
    *out = negative ? -value : value;
    return p;
}

}  // namespace widemargin
