// Half-precision numbers and the bits of numbers.
#pragma once

#include <cstdint>
#include <cstring>

namespace cloze {

inline float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
inline uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}
inline float bf16_to_float(uint16_t bits) { return from_bits(uint32_t(bits) << 16); }
// Rounds to nearest even.
inline uint16_t float_to_bf16(float value) {
    const uint32_t bits = to_bits(value);
    if (value != value) return 0x7FFF;
    return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline float f16_to_float(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31;
    const uint32_t fraction = bits & 0x3FF;
    if (exponent == 31) return from_bits(sign | 0x7F800000 | fraction << 13);
    if (exponent != 0) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    const float small = float(fraction) * (1.0f / 16777216.0f);
    return sign ? -small : small;
}
inline uint16_t float_to_f16(float value) {
    const uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) return 0x7FFF;
    // From 65520, infinity is nearest.
    if (magnitude >= 0x477FF000) return uint16_t(sign | 0x7C00);
    // Subnormal: adding 1/2 moves the last digit into place and rounds.
    if (magnitude < 0x38800000)
        return uint16_t(sign | (to_bits(from_bits(magnitude) + 0.5f) - 0x3F000000));
    const uint32_t odd = magnitude >> 13 & 1;
    return uint16_t(sign | ((magnitude - 0x38000000 + 0xFFF + odd) >> 13));
}

} // namespace cloze
