// XXH3-64 of many chunks that lie in GPU memory, one thread block per chunk.
//
// The algorithm is that of the XXH3 specification (inputs of any length, any 64-bit seed). A chunk is cut into blocks of
// 1,024 bytes. What a block adds to the eight accumulators does not depend on their value, so eight warps work these sums
// out for many blocks at once; only the short step between blocks ("scramble") is a chain, and one warp follows it a tile
// behind the others. The same functions, compiled for the CPU (MUSTER_HOST), are tested against libxxhash.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned char u8;

#ifdef MUSTER_HOST
#define MUSTER_FN static inline
#define MUSTER_CONST static const
static inline u64 high_product(u64 a, u64 b) { return (u64)(((unsigned __int128)a * b) >> 64); }
#else
#define MUSTER_FN static __device__ __forceinline__
#define MUSTER_CONST static __device__ __constant__ const
MUSTER_FN u64 high_product(u64 a, u64 b) { return __umul64hi(a, b); }
#endif

#define PRIME32_1 0x9E3779B1ULL
#define PRIME32_2 0x85EBCA77ULL
#define PRIME32_3 0xC2B2AE3DULL
#define PRIME64_1 0x9E3779B185EBCA87ULL
#define PRIME64_2 0xC2B2AE3D27D4EB4FULL
#define PRIME64_3 0x165667B19E3779F9ULL
#define PRIME64_4 0x85EBCA77C2B2AE63ULL
#define PRIME64_5 0x27D4EB2F165667C5ULL
#define PRIME_MX1 0x165667919E3779F9ULL
#define PRIME_MX2 0x9FB21C651E98DF25ULL

#define SECRET_BYTES 192
#define STRIPE_BYTES 64
#define STRIPES_PER_BLOCK 16
#define BLOCK_BYTES 1024
#define LANES 8

MUSTER_CONST u64 DEFAULT_SECRET[SECRET_BYTES / 8] = {
    0xbe4ba423396cfeb8ULL, 0x1cad21f72c81017cULL, 0xdb979083e96dd4deULL, 0x1f67b3b7a4a44072ULL,
    0x78e5c0cc4ee679cbULL, 0x2172ffcc7dd05a82ULL, 0x8e2443f7744608b8ULL, 0x4c263a81e69035e0ULL,
    0xcb00c391bb52283cULL, 0xa32e531b8b65d088ULL, 0x4ef90da297486471ULL, 0xd8acdea946ef1938ULL,
    0x3f349ce33f76faa8ULL, 0x1d4f0bc7c7bbdcf9ULL, 0x3159b4cd4be0518aULL, 0x647378d9c97e9fc8ULL,
    0xc3ebd33483acc5eaULL, 0xeb6313faffa081c5ULL, 0x49daf0b751dd0d17ULL, 0x9e68d429265516d3ULL,
    0xfca1477d58be162bULL, 0xce31d07ad1b8f88fULL, 0x280416958f3acb45ULL, 0x7e404bbbcafbd7afULL,
};

MUSTER_FN u64 read64(const u8 *from) {
    u64 value = 0;
    if (((size_t)from & 7) == 0) return *(const u64 *)from;
    for (int i = 7; i >= 0; i--) value = value << 8 | from[i];
    return value;
}

MUSTER_FN u64 read32(const u8 *from) { return from[0] | (u32)from[1] << 8 | (u32)from[2] << 16 | (u32)from[3] << 24; }
MUSTER_FN u64 rotate(u64 x, int bits) { return x << bits | x >> (64 - bits); }
MUSTER_FN u64 fold(u64 a, u64 b) { return a * b ^ high_product(a, b); }

MUSTER_FN u64 swap64(u64 x) {
    u64 swapped = 0;
    for (int i = 0; i < 8; i++) swapped = swapped << 8 | (x >> 8 * i & 0xff);
    return swapped;
}

MUSTER_FN u64 avalanche(u64 hash) {
    hash = (hash ^ hash >> 37) * PRIME_MX1;
    return hash ^ hash >> 32;
}

MUSTER_FN u64 avalanche_of_short(u64 hash) {
    hash = (hash ^ hash >> 33) * PRIME64_2;
    hash = (hash ^ hash >> 29) * PRIME64_3;
    return hash ^ hash >> 32;
}

MUSTER_FN u64 default_secret(int at) { return read64((const u8 *)DEFAULT_SECRET + at); }

// The secret of long inputs has the seed worked into it.
MUSTER_FN u64 seeded_secret(int word, u64 seed) { return DEFAULT_SECRET[word] + (word & 1 ? 0 - seed : seed); }

// -- inputs of up to 240 bytes ---------------------------------------------------------------------------------------
MUSTER_FN u64 mix16(const u8 *in, int at, u64 seed) {
    return fold(read64(in) ^ (default_secret(at) + seed), read64(in + 8) ^ (default_secret(at + 8) - seed));
}

MUSTER_FN u64 hash_to_16(const u8 *in, u64 length, u64 seed) {
    if (length > 8) {
        u64 low = read64(in) ^ ((default_secret(24) ^ default_secret(32)) + seed);
        u64 high = read64(in + length - 8) ^ ((default_secret(40) ^ default_secret(48)) - seed);
        return avalanche(length + swap64(low) + high + fold(low, high));
    }
    if (length >= 4) {
        seed ^= (u64)(u32)(swap64(seed & 0xffffffffULL) >> 32) << 32;
        u64 hash = read32(in + length - 4) + (read32(in) << 32);
        hash ^= (default_secret(8) ^ default_secret(16)) - seed;
        hash ^= rotate(hash, 49) ^ rotate(hash, 24);
        hash *= PRIME_MX2;
        hash ^= (hash >> 35) + length;
        hash *= PRIME_MX2;
        return hash ^ hash >> 28;
    }
    if (length == 0) return avalanche_of_short(seed ^ default_secret(56) ^ default_secret(64));
    u64 combined = (u64)in[0] << 16 | (u64)in[length >> 1] << 24 | in[length - 1] | length << 8;
    u64 secret = DEFAULT_SECRET[0];
    return avalanche_of_short(combined ^ (((secret & 0xffffffffULL) ^ secret >> 32) + seed));
}

MUSTER_FN u64 hash_to_128(const u8 *in, u64 length, u64 seed) {
    u64 sum = length * PRIME64_1;
    for (int i = (int)((length - 1) / 32); i >= 0; i--)
        sum += mix16(in + 16 * i, 32 * i, seed) + mix16(in + length - 16 * (i + 1), 32 * i + 16, seed);
    return avalanche(sum);
}

MUSTER_FN u64 hash_to_240(const u8 *in, u64 length, u64 seed) {
    u64 sum = length * PRIME64_1;
    int rounds = (int)(length / 16);
    for (int i = 0; i < 8; i++) sum += mix16(in + 16 * i, 16 * i, seed);
    sum = avalanche(sum);
    for (int i = 8; i < rounds; i++) sum += mix16(in + 16 * i, 16 * (i - 8) + 3, seed);
    return avalanche(sum + mix16(in + length - 16, 136 - 17, seed));
}

MUSTER_FN u64 hash_short(const u8 *in, u64 length, u64 seed) {
    if (length <= 16) return hash_to_16(in, length, seed);
    return length <= 128 ? hash_to_128(in, length, seed) : hash_to_240(in, length, seed);
}

// -- longer inputs ---------------------------------------------------------------------------------------------------
// What one stripe adds to accumulator `lane`: its own keyed product, and its neighbour's data.
MUSTER_FN u64 stripe_term(const u8 *stripe, int lane, u64 key) {
    u64 mixed = read64(stripe + 8 * lane) ^ key;
    return (mixed & 0xffffffffULL) * (mixed >> 32) + read64(stripe + 8 * (lane ^ 1));
}

// The sum over a block's stripes `first`, `first + step`, ... below `count`.
MUSTER_FN u64 block_term(const u8 *block, int lane, const u64 *secret, int first, int step, int count) {
    u64 sum = 0;
    for (int i = first; i < count; i += step) sum += stripe_term(block + STRIPE_BYTES * i, lane, secret[i + lane]);
    return sum;
}

MUSTER_FN u64 first_value(int lane) {
    const u64 values[LANES] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
    return values[lane];
}

MUSTER_FN u64 scramble(u64 sum, int lane, const u64 *secret) {
    return (sum ^ sum >> 47 ^ secret[(SECRET_BYTES - STRIPE_BYTES) / 8 + lane]) * PRIME32_1;
}

// The rest after the last whole block, and the last 64 bytes once more under a shifted key.
MUSTER_FN u64 last_terms(const u8 *in, u64 length, int lane, const u64 *secret) {
    u64 blocks = (length - 1) / BLOCK_BYTES;
    int stripes = (int)((length - 1 - blocks * BLOCK_BYTES) / STRIPE_BYTES);
    u64 sum = block_term(in + blocks * BLOCK_BYTES, lane, secret, 0, 1, stripes);
    return sum + stripe_term(in + length - STRIPE_BYTES, lane, read64((const u8 *)secret + 121 + 8 * lane));
}

MUSTER_FN u64 merge(const u64 *sums, u64 length, const u64 *secret) {
    u64 hash = length * PRIME64_1;
    for (int i = 0; i < 4; i++)
        hash += fold(sums[2 * i] ^ read64((const u8 *)secret + 11 + 16 * i),
                     sums[2 * i + 1] ^ read64((const u8 *)secret + 19 + 16 * i));
    return avalanche(hash);
}

#ifdef MUSTER_HOST
// As the kernel, for the tests: block after block.
void hash_chunks(const u8 *base, const u64 *offsets, const u64 *lengths, u64 count, u64 seed, u64 *digests) {
    u64 secret[SECRET_BYTES / 8], sums[LANES];
    for (int i = 0; i < SECRET_BYTES / 8; i++) secret[i] = seeded_secret(i, seed);
    for (u64 chunk = 0; chunk < count; chunk++) {
        const u8 *in = base + offsets[chunk];
        u64 length = lengths[chunk];
        if (length <= 240) {
            digests[chunk] = hash_short(in, length, seed);
            continue;
        }
        for (int lane = 0; lane < LANES; lane++) {
            sums[lane] = first_value(lane);
            for (u64 block = 0; block < (length - 1) / BLOCK_BYTES; block++) {
                u64 term = 0;
                for (int part = 0; part < 4; part++)
                    term += block_term(in + block * BLOCK_BYTES, lane, secret, part, 4, STRIPES_PER_BLOCK);
                sums[lane] = scramble(sums[lane] + term, lane, secret);
            }
            sums[lane] += last_terms(in, length, lane, secret);
        }
        digests[chunk] = merge(sums, length, secret);
    }
}
#else
#define SUMMING_WARPS 8
#define TILE_BLOCKS 64

// Warps 1 to 8: each takes every eighth block of the tile; 8 lanes x 4 stripes at a time, so that a warp reads 256 bytes
// that lie together.
static __device__ void sum_tile(const u8 *in, u64 first, u64 blocks, const u64 *secret, u64 (*terms)[LANES]) {
    int warp = threadIdx.x / 32 - 1, lane = threadIdx.x & 7, part = threadIdx.x >> 3 & 3;
    for (int i = warp; i < TILE_BLOCKS && first + i < blocks; i += SUMMING_WARPS) {
        u64 term = block_term(in + (first + i) * BLOCK_BYTES, lane, secret, part, 4, STRIPES_PER_BLOCK);
        term += __shfl_xor_sync(0xffffffffu, term, 8);
        term += __shfl_xor_sync(0xffffffffu, term, 16);
        if (part == 0) terms[i][lane] = term;
    }
}

static __device__ u64 follow_tile(u64 sum, u64 first, u64 blocks, const u64 *secret, u64 (*terms)[LANES]) {
    int lane = threadIdx.x & 7;
    for (int i = 0; i < TILE_BLOCKS && first + i < blocks; i++) sum = scramble(sum + terms[i][lane], lane, secret);
    return sum;
}

// Launch with `count` blocks of 32 x (1 + SUMMING_WARPS) = 288 threads.
extern "C" __global__ void __launch_bounds__(288)
hash_chunks(const u8 *base, const u64 *offsets, const u64 *lengths, u64 seed, u64 *digests) {
    __shared__ u64 secret[SECRET_BYTES / 8], terms[2][TILE_BLOCKS][LANES], sums[LANES];
    const u8 *in = base + offsets[blockIdx.x];
    const u64 length = lengths[blockIdx.x], blocks = length ? (length - 1) / BLOCK_BYTES : 0;
    if (length <= 240) {
        if (threadIdx.x == 0) digests[blockIdx.x] = hash_short(in, length, seed);
        return;
    }
    if (threadIdx.x < SECRET_BYTES / 8) secret[threadIdx.x] = seeded_secret(threadIdx.x, seed);
    __syncthreads();
    u64 sum = first_value(threadIdx.x & 7);
    u64 tiles = (blocks + TILE_BLOCKS - 1) / TILE_BLOCKS;
    for (u64 tile = 0; tile <= tiles; tile++) {
        if (threadIdx.x >= 32) {
            if (tile < tiles) sum_tile(in, tile * TILE_BLOCKS, blocks, secret, terms[tile & 1]);
        } else if (tile > 0) {
            sum = follow_tile(sum, (tile - 1) * TILE_BLOCKS, blocks, secret, terms[(tile - 1) & 1]);
        }
        __syncthreads();
    }
    if (threadIdx.x < LANES) sums[threadIdx.x] = sum + last_terms(in, length, threadIdx.x, secret);
    __syncthreads();
    if (threadIdx.x == 0) digests[blockIdx.x] = merge(sums, length, secret);
}
#endif
