// What the stand-ins of libraries need of the driver's.
#pragma once

#include <functional>

#include <cuda.h>

/// A call of a library: one kernel without parameters that could be pointed elsewhere.
void enqueue(CUstream stream, std::function<void()> call);
