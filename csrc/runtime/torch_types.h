// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <optional>

#include "support/device.h"
#include "support/dtype.h"

namespace hostjit {

c10::ScalarType to_torch(DType dtype);
c10::Device to_torch(Device device);

// What operators on tensors of a type take for a number: of integers, an integer.
c10::Scalar to_torch(double number, c10::ScalarType dtype);

// Nothing for a type that Host IR has no name for (quantised, bits, sub-byte).
std::optional<DType> dtype_from_torch(c10::ScalarType dtype);

// Throws Error that names the device and the valid ones. "cuda" without an index is device 0.
Device device_from_torch(c10::Device device);

}  // namespace hostjit
