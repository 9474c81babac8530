/* Keys and the permutation of docs/spec.md, sections 1 and 2, in C: written from the page.
   Reads lines "n seed epoch position"; prints the id at that position of detdata.shuffle/1, and the position found back.
   XXH3-64 is written for 17 to 128 bytes, which is how long every path here is. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t u64;
typedef unsigned __int128 u128;

static const unsigned char SECRET[128] = {
    0xb8,0xfe,0x6c,0x39,0x23,0xa4,0x4b,0xbe,0x7c,0x01,0x81,0x2c,0xf7,0x21,0xad,0x1c,0xde,0xd4,0x6d,0xe9,0x83,0x90,
    0x97,0xdb,0x72,0x40,0xa4,0xa4,0xb7,0xb3,0x67,0x1f,0xcb,0x79,0xe6,0x4e,0xcc,0xc0,0xe5,0x78,0x82,0x5a,0xd0,0x7d,
    0xcc,0xff,0x72,0x21,0xb8,0x08,0x46,0x74,0xf7,0x43,0x24,0x8e,0xe0,0x35,0x90,0xe6,0x81,0x3a,0x26,0x4c,0x3c,0x28,
    0x52,0xbb,0x91,0xc3,0x00,0xcb,0x88,0xd0,0x65,0x8b,0x53,0x2e,0xa3,0x71,0x64,0x48,0x97,0xa2,0x0d,0xf9,0x4e,0x38,
    0x19,0xef,0x46,0xa9,0xde,0xac,0xd8,0xa8,0xfa,0x76,0x3f,0xe3,0x9c,0x34,0x3f,0xf9,0xdc,0xbb,0xc7,0xc7,0x0b,0x4f,
    0x1d,0x8a,0x51,0xe0,0x4b,0xcd,0xb4,0x59,0x31,0xc8,0x9f,0x7e,0xc9,0xd9,0x78,0x73,0x64};

static u64 le(const unsigned char *p) {
    u64 v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static u64 mix16(const unsigned char *in, const unsigned char *secret) {
    u128 product = (u128)(le(in) ^ le(secret)) * (le(in + 8) ^ le(secret + 8));
    return (u64)product ^ (u64)(product >> 64);
}

static u64 xxh3(const unsigned char *in, size_t len) {
    if (len < 17 || len > 128) exit(3);
    u64 acc = len * 0x9E3779B185EBCA87ULL;
    for (int i = (int)(len - 1) / 32; i >= 0; i--) {
        acc += mix16(in + 16 * i, SECRET + 32 * i);
        acc += mix16(in + len - 16 * (i + 1), SECRET + 32 * i + 16);
    }
    acc ^= acc >> 37;
    acc *= 0x165667919E3779F9ULL;
    return acc ^ (acc >> 32);
}

static size_t put(unsigned char *to, char tag, u64 length, const unsigned char *body) {
    to[0] = (unsigned char)tag;
    for (int i = 0; i < 8; i++) to[1 + i] = (unsigned char)(length >> 8 * i);
    memcpy(to + 9, body, length);
    return 9 + length;
}

static size_t put_int(unsigned char *to, u64 value) {
    unsigned char body[8];
    for (int i = 0; i < 8; i++) body[i] = (unsigned char)(value >> 8 * i);
    return put(to, 'i', 8, body);
}

static u64 fold(const char *tag, u64 first, u64 second) {
    unsigned char bytes[128];
    size_t at = put(bytes, 's', strlen(tag), (const unsigned char *)tag);
    at += put_int(bytes + at, first);
    at += put_int(bytes + at, second);
    return xxh3(bytes, at);
}

static u64 mix64(u64 z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

static u64 F(u64 x, u64 k, u64 m) {
    u64 z = (x ^ k) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 32)) * 0xD6E8FEB86659FD93ULL;
    return ((z >> 32) * m) >> 32;
}

static u64 a, b, K[6];

static u64 network(u64 x) {
    u64 L = x / b, R = x % b;
    for (int i = 0; i < 6; i += 2) {
        L = (L + F(R, K[i], a)) % a;
        R = (R + F(L, K[i + 1], b)) % b;
    }
    return L * b + R;
}

static u64 inverse(u64 x) {
    u64 L = x / b, R = x % b;
    for (int i = 5; i > 0; i -= 2) {
        R = (R + b - F(L, K[i], b)) % b;
        L = (L + a - F(R, K[i - 1], a)) % a;
    }
    return L * b + R;
}

static int rising(const void *x, const void *y) {
    u64 p = *(const u64 *)x, q = *(const u64 *)y;
    return p < q ? -1 : p > q;
}

int main(void) {
    u64 n, seed, epoch, p;
    while (scanf("%" SCNu64 "%" SCNu64 "%" SCNu64 "%" SCNu64, &n, &seed, &epoch, &p) == 4) {
        u64 key = fold("detdata.shuffle/1", seed, epoch), id, back = 0;
        if (n <= 65536) {
            u64 *keys = malloc(n * sizeof *keys);
            for (u64 i = 0; i < n; i++)
                keys[i] = (mix64((i + 1) * 0x9E3779B97F4A7C15ULL + key) & 0xFFFFFFFFFFFF0000ULL) | i;
            qsort(keys, n, sizeof *keys, rising);
            id = keys[p] & 0xFFFF;
            while ((keys[back] & 0xFFFF) != id) back++;
            free(keys);
        } else {
            for (a = 1; a * a < n && a < 2147483648ULL; a = a * 2) {}  /* then down to the smallest, bit by bit */
            for (u64 step = a; step; step /= 2)
                while (a > step && (a - step) * (a - step) >= n) a -= step;
            b = (n + a - 1) / a;
            for (u64 i = 0; i < 6; i++) K[i] = fold("detdata.feistel/1", key, i);
            for (id = network(p); id >= n;) id = network(id);
            for (back = inverse(id); back >= n;) back = inverse(back);
        }
        printf("%" PRIu64 " %" PRIu64 "\n", id, back);
    }
    return 0;
}
