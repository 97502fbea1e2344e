// CRC-32 as zlib's crc32 computes it (reflected polynomial 0xEDB88320), eight bytes at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace golow {

/// Table k holds for each byte its contribution to the remainder when k zero bytes follow it.
using ChecksumTables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr ChecksumTables make_checksum_tables() {
  ChecksumTables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit)
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? 0xEDB88320u : 0u);
    tables[0][byte] = remainder;
  }
  for (std::size_t zeros = 1; zeros < tables.size(); ++zeros)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[zeros - 1][byte];
      tables[zeros][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  return tables;
}

/// The checksum of the bytes that `checksum` covers (0 at the start), followed by these bytes.
inline std::uint32_t crc32(std::uint32_t checksum, const void* data, std::size_t count) {
  static constexpr ChecksumTables kTables = make_checksum_tables();
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint32_t remainder = ~checksum;
  for (; count >= 8; count -= 8, bytes += 8) {
    std::uint32_t low = 0, high = 0;  // little-endian, as everywhere in these files
    std::memcpy(&low, bytes, 4);
    std::memcpy(&high, bytes + 4, 4);
    low ^= remainder;
    remainder = kTables[7][low & 0xFF] ^ kTables[6][(low >> 8) & 0xFF] ^
                kTables[5][(low >> 16) & 0xFF] ^ kTables[4][low >> 24] ^
                kTables[3][high & 0xFF] ^ kTables[2][(high >> 8) & 0xFF] ^
                kTables[1][(high >> 16) & 0xFF] ^ kTables[0][high >> 24];
  }
  for (; count > 0; --count, ++bytes)
    remainder = (remainder >> 8) ^ kTables[0][(remainder ^ *bytes) & 0xFF];
  return ~remainder;
}

}  // namespace golow
