// SPDX-License-Identifier: Apache-2.0
#include "slope_reporter.h"

#include <unistd.h>

#include <iomanip>

namespace hostjit {

SlopeReporter::SlopeReporter()
    : ConsoleReporter(isatty(STDOUT_FILENO) ? OO_Defaults : OO_Tabular) {}

void SlopeReporter::ReportRuns(const std::vector<Run>& runs) {
  ConsoleReporter::ReportRuns(runs);
  for (const Run& run : runs) {
    const auto nodes = run.counters.find("nodes");
    if (nodes == run.counters.end() || run.iterations == 0) continue;
    if (run.run_type == Run::RT_Aggregate && run.aggregate_name != "median") continue;
    const double seconds =
        run.GetAdjustedRealTime() / benchmark::GetTimeUnitMultiplier(run.time_unit);
    families_[run.run_name.function_name].push_back({nodes->second.value, seconds * 1e9});
  }
}

void SlopeReporter::Finalize() {
  ConsoleReporter::Finalize();
  for (const auto& [name, points] : families_) {
    double weights = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (const Point& point : points) {
      const double weight = 1 / (point.nanoseconds * point.nanoseconds);
      weights += weight;
      x += weight * point.nodes;
      y += weight * point.nanoseconds;
      xx += weight * point.nodes * point.nodes;
      xy += weight * point.nodes * point.nanoseconds;
    }
    const double determinant = weights * xx - x * x;
    if (points.size() < 2 || determinant == 0) continue;
    const double slope = (weights * xy - x * y) / determinant;
    GetOutputStream() << std::left << std::setw(36) << name << std::right << std::fixed
                      << std::setprecision(2) << std::setw(9) << slope << " ns per node"
                      << std::setw(9) << (y - slope * x) / weights << " ns per call without\n";
  }
}

}  // namespace hostjit
