// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/null_cuda.h"

namespace hostjit::cuda {

// How much of each stream's work is known to be done before a point: the ticks of streams.
class VectorClock {
 public:
  void join(const VectorClock& other);
  void advance(int32_t stream) { ++ticks_[stream]; }
  int64_t at(int32_t stream) const;

 private:
  std::map<int32_t, int64_t> ticks_;
};

// One thing that a stream did.
struct Moment {
  int32_t stream = 0;
  int64_t tick = 0;
  bool is_before(const VectorClock& clock) const { return clock.at(stream) >= tick; }
};

// What a stream did to some bytes, and nobody has written all of since.
struct MemoryAccess {
  CUdeviceptr begin = 0;
  CUdeviceptr end = 0;
  Moment moment;
  bool is_write = false;
};

}  // namespace hostjit::cuda

// The driver's handles point at these.
namespace hostjit::cuda {

struct CUctx_st {
  int32_t device = 0;
};

struct CUfunc_st {
  std::string name;
  std::vector<size_t> parameter_bytes;
  CUmodule module = nullptr;
};

struct CUmod_st {
  int32_t device = 0;
  std::map<std::string, CUfunc_st> functions;
};

struct CUstream_st {
  int32_t id = 0;  // 0, -1, ... for the default streams of devices
  int32_t device = 0;
  bool is_blocking = true;  // waits for the default stream, which waits for it
  VectorClock clock;
};

struct CUevent_st {
  int32_t id = 0;
  std::optional<VectorClock> recorded;
  int64_t num_launches = 0;  // that were before it
};

// A launch with copies of its parameters.
struct KeptLaunch {
  CUfunction function = nullptr;
  LaunchShape shape;
  std::vector<std::vector<std::byte>> parameters;
};

struct CUgraphNode_st {
  KeptLaunch launch;
  std::vector<CUgraphNode> dependencies;
};

struct CUgraph_st {
  std::deque<CUgraphNode_st> nodes;  // in the order in which they were added
};

struct CUgraphExec_st {
  std::vector<std::pair<CUgraphNode, KeptLaunch>> launches;
  std::map<CUgraphNode, std::vector<CUgraphNode>> dependencies;
  std::set<CUgraphNode> disabled;
};

class NullCuda::State {
 public:
  explicit State(int32_t num_devices);

  // Held by every function of the driver; emulations run under it too.
  std::recursive_mutex mutex;

  // What the next call of a function must return, if it must fail.
  CUresult enter(const char* function);
  void fail(const std::string& function, CUresult result, int64_t after, bool sticky);

  int32_t num_devices() const { return static_cast<int32_t>(contexts_.size()); }
  CUctx_st* context(int32_t device) { return &contexts_[static_cast<size_t>(device)]; }
  bool is_context(CUcontext context) const;
  // The calling thread's.
  CUcontext current_context() const;
  void set_current_context(CUcontext context);

  CUresult load(CUmodule* module, const char* image);
  CUresult unload(CUmodule module);
  CUresult find_function(CUfunction* function, CUmodule module, const std::string& name);
  CUresult parameter(CUfunction function, size_t index, size_t* offset, size_t* size);

  CUresult create_stream(CUstream* stream, bool is_blocking);
  CUresult destroy_stream(CUstream stream);
  CUresult synchronize(CUstream stream);
  CUresult synchronize_context();
  CUresult create_event(CUevent* event);
  CUresult destroy_event(CUevent event);
  CUresult record(CUevent event, CUstream stream);
  CUresult wait(CUstream stream, CUevent event);
  CUresult synchronize(CUevent event);
  // Each launch takes a millisecond.
  CUresult elapsed(float* milliseconds, CUevent begin, CUevent end);

  CUresult launch(CUfunction function, const LaunchShape& shape, CUstream stream,
                  void* const* parameters);
  CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
  CUresult fill(CUdeviceptr to, uint8_t value, size_t bytes, CUstream stream);

  CUresult create_graph(CUgraph* graph);
  CUresult destroy_graph(CUgraph graph);
  CUresult add_node(CUgraphNode* node, CUgraph graph, std::span<const CUgraphNode> dependencies,
                    CUfunction function, const LaunchShape& shape, void* const* parameters);
  CUresult instantiate(CUgraphExec* exec, CUgraph graph);
  CUresult destroy_exec(CUgraphExec exec);
  CUresult set_node(CUgraphExec exec, CUgraphNode node, CUfunction function,
                    const LaunchShape& shape, void* const* parameters);
  CUresult set_enabled(CUgraphExec exec, CUgraphNode node, bool enabled);
  CUresult launch_graph(CUgraphExec exec, CUstream stream);

  CUdeviceptr allocate(size_t bytes, int32_t device, CUstream stream);
  void free(CUdeviceptr memory);
  void note_use(CUdeviceptr memory, CUstream stream);
  CUstream current_stream(int32_t device);
  void set_current_stream(int32_t device, CUstream stream);

  std::map<std::string, Emulation> emulations;
  std::map<std::string, std::set<size_t>> reads;
  std::map<std::string, std::vector<size_t>> extents;
  std::vector<std::string> log;
  std::vector<NullLaunch> launches;
  std::vector<std::string> faults;
  int64_t bytes_allocated = 0;
  std::set<CUstream> captured;

 private:
  struct Allocation {
    int32_t number = 0;
    size_t bytes = 0;
    int32_t device = 0;
    CUstream stream = nullptr;
    std::set<CUstream> users = {};  // streams that it waits for when it is freed, too
    bool is_live = true;
    std::vector<MemoryAccess> accesses = {};
  };
  struct Failure {
    CUresult result;
    int64_t after;
    bool sticky;
  };

  // The stream of a handle, null for one that is none. A null handle is the default stream of the
  // current device.
  CUstream_st* stream_of(CUstream handle);
  // A stream that may have ended, or the default one of `device`.
  CUstream_st& stream_in(CUstream handle, int32_t device);
  // The stream takes up its next work.
  void begin(CUstream_st& stream);
  void note(std::string line) { log.push_back(std::move(line)); }
  void fault(std::string text);
  std::map<CUdeviceptr, Allocation>::iterator find_allocation(CUdeviceptr address);
  std::string name_of(CUdeviceptr address);
  void access(CUdeviceptr address, size_t bytes, bool is_write, int32_t stream,
              const VectorClock& clock, const std::string& who);

  KeptLaunch keep(CUfunction function, const LaunchShape& shape, void* const* parameters) const;
  bool is_function(CUfunction function) const;
  static bool is_possible(const LaunchShape& shape);
  void run(const KeptLaunch& launch, CUstream_st& stream, int32_t clock_id,
           const VectorClock& clock, bool from_graph);

  std::vector<CUctx_st> contexts_;
  std::deque<CUstream_st> default_streams_;
  std::map<CUmodule, std::unique_ptr<CUmod_st>> modules_;
  std::map<CUstream, std::unique_ptr<CUstream_st>> streams_;
  std::map<CUevent, std::unique_ptr<CUevent_st>> events_;
  std::map<CUgraph, std::unique_ptr<CUgraph_st>> graphs_;
  std::map<CUgraphExec, std::unique_ptr<CUgraphExec_st>> execs_;
  std::map<CUdeviceptr, Allocation> allocations_;
  std::deque<CUdeviceptr> freed_;  // oldest first
  size_t freed_bytes_ = 0;
  std::map<std::string, Failure> failures_;
  CUresult sticky_ = CUDA_SUCCESS;
  VectorClock host_;
  VectorClock ended_;  // of streams that were destroyed
  int64_t num_launches_ = 0;
  int32_t next_stream_ = 1;
  int32_t next_event_ = 0;
  int32_t next_allocation_ = 0;
  int32_t next_node_ = 1 << 20;  // clocks of graph nodes
};

// The functions of NullCuda::installed().
const Driver& null_driver();

}  // namespace hostjit::cuda
