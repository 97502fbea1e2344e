"""Batch norm's statistics of groups of pixels as those of channels; steps/statistics.py states what
for. Channels are in blocks, in which those of a group are one after the other."""

from __future__ import annotations

from golow.levels.direct.onednn.kernels import Kernel, parts

PLACE = "(c / block * groups + g) * block + c % block"

COMBINED = """\
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long groups = n[2], block = n[3], given = n[4];
  float* const* const p = reinterpret_cast<float* const*>(pointers);
  float* const* const spread = p + 2 + given;
  for (long c = begin; c < end; c++) {{
    double mean = 0, within = 0, between = 0;
    for (long g = 0; g < groups; g++) {{
      mean += p[0][{place}];
      within += p[1][{place}];
    }}
    mean /= groups;
    for (long g = 0; g < groups; g++) {{
      const double distance = p[0][{place}] - mean;
      between += distance * distance;
    }}
    spread[given + 2][c] = static_cast<float>(mean);
    spread[given + 3][c] = static_cast<float>((within + between) / groups);
    for (long g = 0; g < groups; g++) {{
      spread[0][{place}] = spread[given + 2][c];
      spread[1][{place}] = spread[given + 3][c];
      for (long k = 0; k < given; k++) spread[2 + k][{place}] = p[2 + k][c];
    }}
  }}
}}"""
CORRECTIONS = """\
static void body(void* const* pointers, const long* n, long begin, long end) {{
  const long groups = n[2], block = n[3], pixels = n[4], scaled = n[5];
  float* const* const p = reinterpret_cast<float* const*>(pointers);
  float* const* const made = p + 4 + scaled;
  const double share = pixels / groups;
  for (long c = begin; c < end; c++) {{
    double normed = 0, ones = 0;
    for (long g = 0; g < groups; g++) {{
      normed += p[0][{place}];
      ones += p[1][{place}];
    }}
    const double mean = p[2][c], inverse = 1 / __builtin_sqrt(p[3][c] + {epsilon});
    const double factor = scaled ? inverse * p[4][c] : inverse;
    for (long g = 0; g < groups; g++) {{
      const double slope = factor * inverse * (p[0][{place}] / share - normed / pixels);
      made[0][{place}] =
          static_cast<float>(factor * (p[1][{place}] / share - ones / pixels) - slope * mean);
      made[1][{place}] = static_cast<float>(slope);
    }}
    made[2][c] = static_cast<float>(normed);
    made[3][c] = static_cast<float>(ones);
  }}
}}"""


def combined(channels: int, groups: int, block: int, given: int) -> Kernel:
    """Pointers: means and variances of the groups' channels, this many values of each channel ->
    mean, variance and those values for each channel of every group; then mean and variance of each
    channel."""
    numbers = parts(channels, channels * groups)
    return Kernel(COMBINED.format(place=PLACE), (*numbers, groups, block, given))


def corrections(
    channels: int, groups: int, block: int, pixels: int, scaled: bool, epsilon: float
) -> Kernel:
    """Pointers: sums of n g and of g over the groups' channels, mean, variance and, if scaled, the
    scale of each channel -> A and B for each channel of every group; then both sums of each
    channel. Names are those of `steps.statistics.corrections`; pixels: of a channel."""
    code = CORRECTIONS.format(place=PLACE, epsilon=repr(epsilon))
    numbers = parts(channels, channels * groups)
    return Kernel(code, (*numbers, groups, block, pixels, int(scaled)))
