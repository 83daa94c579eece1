// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace hostjit {

// How PyTorch holds its autograd nodes: an intrusive_ptr, up to 2.12 a shared_ptr.
using NodePtr = std::remove_cvref_t<decltype(std::declval<torch::autograd::Edge>().function)>;

template <class T, class... Arguments>
auto make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<torch::autograd::Node>>) {
    return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...),
                              [](T* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
  }
}

}  // namespace hostjit
