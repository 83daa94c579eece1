// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace hostjit {

// Prints the usual table, and at the end, for every family of runs with a counter `nodes`, the
// time per node and the time of a call without nodes: the line of least squares through the runs,
// each weighted by its time, so that small and large programs count alike.
class SlopeReporter : public benchmark::ConsoleReporter {
 public:
  SlopeReporter();
  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override;

 private:
  struct Point {
    double nodes;
    double nanoseconds;
  };
  std::map<std::string, std::vector<Point>> families_;
};

}  // namespace hostjit
