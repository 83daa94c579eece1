// SPDX-License-Identifier: Apache-2.0
// What kernels leave to instructions of the device, once its types are defined.

namespace hostjit {

inline float widen(f16 stored) { return static_cast<float>(same_bits<_Float16>(stored.bits)); }

inline f16 to_f16(float x) { return {same_bits<unsigned short>(static_cast<_Float16>(x))}; }

inline bf16 to_bf16(float x) {
  const unsigned int bits = same_bits<unsigned int>(x);
  if (x != x) return {0x7fff};
  return {static_cast<unsigned short>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

}  // namespace hostjit
