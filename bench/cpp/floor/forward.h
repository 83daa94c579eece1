// SPDX-License-Identifier: Apache-2.0
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// One row through the models of bench/python/workloads.py. `packed` holds the parameters one after
// the other, each weight with the outputs of one input side by side.
void policy_forward(const float* packed, const float* x, float* y);
void chain_forward(const float* packed, const float* x, float* y);

#ifdef __cplusplus
}
#endif
