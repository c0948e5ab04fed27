/* The signature of a request: base64(HMAC-SHA1(secret, values in the order of their names, then the body)). */
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>

struct sha1 {
    uint32_t h[5];
    uint8_t block[64];
    uint64_t bytes;
};

static uint32_t rotate(uint32_t value, int by) { return value << by | value >> (32 - by); }

static void sha1_block(struct sha1 *s, const uint8_t *block) {
    uint32_t w[80], a = s->h[0], b = s->h[1], c = s->h[2], d = s->h[3], e = s->h[4];
    for (int i = 0; i < 16; i++) w[i] = read_u32(block + 4 * i);
    for (int i = 16; i < 80; i++) w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20 ? ((b & c) | (~b & d)) + 0x5A827999u
                   : i < 40 ? (b ^ c ^ d) + 0x6ED9EBA1u
                   : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8F1BBCDCu
                            : (b ^ c ^ d) + 0xCA62C1D6u;
        uint32_t t = rotate(a, 5) + f + e + w[i];
        e = d, d = c, c = rotate(b, 30), b = a, a = t;
    }
    s->h[0] += a, s->h[1] += b, s->h[2] += c, s->h[3] += d, s->h[4] += e;
}

static void sha1_start(struct sha1 *s) {
    static const uint32_t start[5] = {0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u};
    memcpy(s->h, start, sizeof start);
    s->bytes = 0;
}

static void sha1_add(struct sha1 *s, const void *data, size_t size) {
    const uint8_t *at = data;
    size_t held = s->bytes % 64;
    s->bytes += size;
    while (held + size >= 64) {
        if (held == 0) {
            sha1_block(s, at);
            at += 64, size -= 64;
        } else {
            memcpy(s->block + held, at, 64 - held);
            sha1_block(s, s->block);
            at += 64 - held, size -= 64 - held, held = 0;
        }
    }
    memcpy(s->block + held, at, size);
}

static void sha1_end(struct sha1 *s, uint8_t digest[20]) {
    static const uint8_t pad[64] = {0x80};
    uint8_t length[8];
    write_u64(length, s->bytes * 8);
    sha1_add(s, pad, 1 + (119 - s->bytes % 64) % 64);
    sha1_add(s, length, 8);
    for (int i = 0; i < 5; i++) write_u32(digest + 4 * i, s->h[i]);
}

static char signer[80];
static struct sha1 inner, outer;

bool sign_as(const char *user) {
    const char *secret = strchr(user, ':');
    uint8_t pad[64];
    if (secret == NULL || (size_t)(secret - user) >= sizeof signer || strlen(secret + 1) > 64) return false;
    memcpy(signer, user, (size_t)(secret++ - user));
    for (int turn = 0; turn < 2; turn++) {
        struct sha1 *s = turn == 0 ? &inner : &outer;
        memset(pad, turn == 0 ? 0x36 : 0x5C, sizeof pad);
        for (size_t i = 0; i < strlen(secret); i++) pad[i] ^= (uint8_t)secret[i];
        sha1_start(s);
        sha1_add(s, pad, sizeof pad);
    }
    return true;
}

struct value {
    const char *name, *end; /* of the name */
    const char *text, *text_end;
};

static int by_name(const void *one, const void *other) {
    const struct value *a = one, *b = other;
    size_t size = (size_t)(a->end - a->name), others = (size_t)(b->end - b->name);
    int order = memcmp(a->name, b->name, size < others ? size : others);
    return order != 0 ? order : (size > others) - (size < others);
}

static char *put_text(char *at, const char *text) {
    size_t size = strlen(text);
    memcpy(at, text, size);
    return at + size;
}

/* Reads its own writing: "name":"text" pairs, the only escapes \u0001 and \u0002. */
char *put_signature(char *fields, char *end, const uint8_t *body, size_t body_length) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct value values[32];
    int count = 0;
    uint8_t digest[21] = {0};
    if (signer[0] == 0) return end;
    end = put_text(put_text(put_text(end, ",\"AccessKey\":\""), signer), "\"");
    for (const char *at = fields; at < end; count++) {
        struct value *value = &values[count];
        value->name = at + 1;
        value->end = strchr(value->name, '"');
        value->text = value->end + 3;
        value->text_end = strchr(value->text, '"');
        at = value->text_end + 2;
    }
    qsort(values, (size_t)count, sizeof *values, by_name);
    struct sha1 s = inner;
    for (int i = 0; i < count; i++) {
        const char *at = values[i].text;
        while (at < values[i].text_end) {
            const char *escape = memchr(at, '\\', (size_t)(values[i].text_end - at));
            const char *stop = escape ? escape : values[i].text_end;
            sha1_add(&s, at, (size_t)(stop - at));
            if (escape) {
                uint8_t byte = (uint8_t)(escape[5] - '0');
                sha1_add(&s, &byte, 1);
            }
            at = escape ? escape + 6 : stop;
        }
    }
    sha1_add(&s, body, body_length);
    sha1_end(&s, digest);
    s = outer;
    sha1_add(&s, digest, 20);
    sha1_end(&s, digest);
    end = put_text(end, ",\"Signature\":\"");
    for (int i = 0; i < 21; i += 3) {
        uint32_t three = (uint32_t)digest[i] << 16 | (uint32_t)digest[i + 1] << 8 | digest[i + 2];
        for (int shift = 18; shift >= 0; shift -= 6) *end++ = digits[three >> shift & 63];
    }
    end[-1] = '=';
    return put_text(end, "\"");
}
