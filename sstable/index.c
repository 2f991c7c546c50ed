/* SPDX-License-Identifier: MIT
 *
 * sstable/index.c -- write, load and search the index of a table.
 */
#include "sstable/index.h"

#include <inttypes.h>

#include "filter/bytes.h"
#include "filter/hash.h"
#include "sstable/codec.h"
#include "sstable/entry.h"
#include "sstable/format.h"
#include "sstable/pieces.h"

/* ---- Writing --------------------------------------------------------------------------------------- */

/* A child as the builder keeps it; the separator follows. */
struct child {
    uint64_t stored_bytes;
    uint32_t separator_length;
};

tamis_status
tm_index_separator(const struct tm_env *env, tamis_slice last, tamis_slice next, struct tm_buf *out,
                   tamis_error *err)
{
    const uint8_t *p = last.data;
    const uint8_t *q = next.data;
    size_t shared = tm_slice_shared(last, next);
    size_t at = last.length; // position whose byte is raised; last.length: none, the key itself
    tamis_status status;

    out->length = 0;
    if (!tm_order_is_bytewise(&env->order))
        return tm_buf_append(env, out, last.data, last.length, err);
    if (shared < last.length && shared < next.length) {
        assert(p[shared] < q[shared]);
        // A byte above last's, in the first place where they differ, and still below next: below its byte,
        // or equal to it when next goes on after it.
        at = shared;
        if (p[at] + 1 == q[at] && next.length == at + 1) {
            // No room in that place: keep last's byte there and raise the first later one that can be.
            for (at++; at < last.length && p[at] == 0xff; at++)
                ;
        }
    }
    if (at + 1 >= last.length) // raising saves nothing
        return tm_buf_append(env, out, last.data, last.length, err);
    status = tm_buf_append(env, out, last.data, at + 1, err);
    if (status == TAMIS_OK)
        out->data[at]++;
    return status;
}

tamis_status
tm_index_builder_add(const struct tm_env *env, struct tm_index_builder *builder,
                     tamis_slice separator, uint64_t stored_bytes, tamis_error *err)
{
    struct child child = {stored_bytes, (uint32_t)separator.length};
    tamis_status status;

    status = tm_buf_reserve(env, &builder->children, sizeof child + separator.length, err);
    if (status != TAMIS_OK)
        return status;
    memcpy(builder->children.data + builder->children.length, &child, sizeof child);
    builder->children.length += sizeof child;
    if (separator.length > 0)
        memcpy(builder->children.data + builder->children.length, separator.data, separator.length);
    builder->children.length += separator.length;
    builder->count++;
    return TAMIS_OK;
}

/* A leaf or top in the making. */
struct node {
    struct tm_buf bytes;  // unpacked
    tamis_slice previous; // separator added last; borrowed
    uint32_t count;
    uint64_t next_offset; // where the next child begins (I3)
};

static tamis_status
node_begin(const struct tm_env *env, struct node *node, tamis_error *err)
{
    tamis_status status;

    node->bytes.length = 0;
    node->count = 0;
    node->previous = tm_slice(NULL, 0);
    status = tm_buf_reserve(env, &node->bytes, TM_INDEX_HEADER_BYTES, err);
    if (status != TAMIS_OK)
        return status;
    tm_put_u32(node->bytes.data + TM_INDEX_ZERO_AT, 0);
    tm_put_u64(node->bytes.data + TM_INDEX_FIRST_AT, node->next_offset);
    node->bytes.length = TM_INDEX_HEADER_BYTES;
    return TAMIS_OK;
}

static tamis_status
node_add(const struct tm_env *env, struct node *node, tamis_slice separator, uint64_t stored_bytes,
         tamis_error *err)
{
    size_t shared = tm_slice_shared(node->previous, separator);
    size_t rest = separator.length - shared;
    tamis_status status;
    uint8_t *p;

    status = tm_buf_reserve(env, &node->bytes, 3 * TM_VARINT64_BYTES_MAX + rest, err);
    if (status != TAMIS_OK)
        return status;
    p = node->bytes.data + node->bytes.length;
    p = tm_put_varint64(p, shared);
    p = tm_put_varint64(p, rest);
    if (rest > 0)
        memcpy(p, (const uint8_t *)separator.data + shared, rest);
    p = tm_put_varint64(p + rest, stored_bytes);
    node->bytes.length = (size_t)(p - node->bytes.data);
    node->previous = separator;
    node->count++;
    node->next_offset += stored_bytes;
    return TAMIS_OK;
}

/* Seal the node at the end of the section; its checksum goes to the list. */
static tamis_status
node_seal(const struct tm_env *env, struct node *node, struct tm_place place, bool compress,
          struct tm_buf *scratch, struct tm_buf *section, struct tm_buf *checksums,
          uint64_t *stored_bytes_out, tamis_error *err)
{
    tamis_slice stored;
    uint64_t checksum;
    uint8_t bytes[8];
    tamis_status status;

    tm_put_u32(node->bytes.data + TM_INDEX_COUNT_AT, node->count);
    place.offset += section->length;
    status = tm_block_seal(env, &place, &node->bytes, scratch, compress, &stored, &checksum, err);
    if (status != TAMIS_OK)
        return status;
    tm_put_u64(bytes, checksum);
    status = tm_buf_append(env, checksums, bytes, sizeof bytes, err);
    if (status != TAMIS_OK)
        return status;
    *stored_bytes_out = stored.length;
    return tm_buf_append(env, section, stored.data, stored.length, err);
}

tamis_status
tm_index_builder_finish(const struct tm_env *env, const struct tm_index_builder *builder,
                        uint64_t data_id, uint64_t section_offset, bool compress,
                        struct tm_buf *section, uint64_t *top_bytes_out, uint64_t *checksum_out,
                        tamis_error *err)
{
    struct tm_buf scratch = {0};
    struct tm_buf checksums = {0};
    struct node leaf = {0};
    struct node top = {.next_offset = section_offset};
    struct tm_place leaf_place = {NULL, data_id, section_offset, TM_BLOCK_INDEX_LEAF};
    struct tm_place top_place = {NULL, data_id, section_offset, TM_BLOCK_INDEX_TOP};
    const uint8_t *p = builder->children.data;
    uint64_t stored_bytes;
    tamis_status status;

    assert(section->length == 0 && builder->count > 0);
    status = node_begin(env, &top, err);
    if (status != TAMIS_OK)
        goto out;
    status = node_begin(env, &leaf, err);
    if (status != TAMIS_OK)
        goto out;
    for (uint64_t i = 0; i < builder->count; i++) {
        struct child child;
        tamis_slice separator;

        memcpy(&child, p, sizeof child);
        separator = tm_slice(p + sizeof child, child.separator_length);
        p += sizeof child + child.separator_length;
        status = node_add(env, &leaf, separator, child.stored_bytes, err);
        if (status != TAMIS_OK)
            goto out;
        if (leaf.bytes.length < TM_INDEX_LEAF_BYTES && i + 1 < builder->count)
            continue;
        status = node_seal(env, &leaf, leaf_place, compress, &scratch, section, &checksums,
                           &stored_bytes, err);
        if (status != TAMIS_OK)
            goto out;
        status = node_add(env, &top, separator, stored_bytes, err);
        if (status != TAMIS_OK)
            goto out;
        status = node_begin(env, &leaf, err);
        if (status != TAMIS_OK)
            goto out;
    }
    status = node_seal(env, &top, top_place, compress, &scratch, section, &checksums, top_bytes_out,
                       err);
    if (status == TAMIS_OK)
        *checksum_out = tm_hash64(checksums.data, checksums.length, 0);

out:
    tm_buf_release(env, &scratch);
    tm_buf_release(env, &checksums);
    tm_buf_release(env, &leaf.bytes);
    tm_buf_release(env, &top.bytes);
    return status;
}

void
tm_index_builder_release(const struct tm_env *env, struct tm_index_builder *builder)
{
    tm_buf_release(env, &builder->children);
    builder->count = 0;
}

/* ---- Loading --------------------------------------------------------------------------------------- */

/* What has been read so far. */
struct loading {
    const struct tm_env *env;
    const struct tm_index_place *place;
    struct tm_buf separators; // all, one after the other, whole
    struct tm_buf ends;       // u64: where each ends in separators
    struct tm_buf offsets;    // u64: of each block
    struct tm_buf checksums;  // 8 bytes a block of the section, little-endian
};

/* A place in the children of a node. */
struct walk {
    const struct tm_index_place *place;
    struct tm_cursor cursor;
    uint64_t node_offset; // for messages
    uint64_t next_offset; // where the next child begins
    uint32_t left;        // children not yet read
};

static tamis_status __attribute__((noinline, cold))
bad_node(const struct walk *walk, tamis_error *err)
{
    return TM_FAIL(err, TAMIS_CORRUPT,
                   "%s: index block at %" PRIu64 ": malformed: %" PRIu32
                   " separators expected in the %zu bytes left",
                   walk->place->file, walk->node_offset, walk->left,
                   (size_t)(walk->cursor.end - walk->cursor.next));
}

static tamis_status
walk_init(struct walk *walk, const struct tm_index_place *place, uint64_t node_offset,
          const struct tm_block *node, uint64_t first_expected, tamis_error *err)
{
    uint32_t zero;

    walk->place = place;
    walk->node_offset = node_offset;
    walk->cursor = tm_cursor_over(node->data, node->length);
    walk->left = tm_cursor_u32(&walk->cursor);
    zero = tm_cursor_u32(&walk->cursor);
    walk->next_offset = tm_cursor_u64(&walk->cursor);
    if (walk->cursor.failed || zero != 0 || walk->left == 0)
        return bad_node(walk, err);
    if (walk->next_offset != first_expected) // I3
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: index block at %" PRIu64 ": first child expected at %" PRIu64
                       ", found %" PRIu64,
                       place->file, node_offset, first_expected, walk->next_offset);
    return TAMIS_OK;
}

/* Read one child: replace `separator` (which holds the one before) and tell its stored length. */
static tamis_status
walk_next(const struct tm_env *env, struct walk *walk, struct tm_buf *separator,
          uint64_t section_end, uint64_t *stored_bytes_out, tamis_error *err)
{
    uint64_t shared = tm_cursor_varint(&walk->cursor);
    uint64_t rest = tm_cursor_varint(&walk->cursor);
    const uint8_t *bytes;
    uint64_t stored_bytes;
    tamis_status status;

    if (walk->cursor.failed || walk->left == 0 || shared > separator->length ||
        rest > TAMIS_KEY_BYTES_MAX - shared)
        return bad_node(walk, err);
    bytes = tm_cursor_bytes(&walk->cursor, rest);
    stored_bytes = tm_cursor_varint(&walk->cursor);
    if (walk->cursor.failed || stored_bytes < TM_TRAILER_BYTES ||
        stored_bytes > section_end - walk->next_offset)
        return bad_node(walk, err);
    separator->length = (size_t)shared;
    status = tm_buf_append(env, separator, bytes, (size_t)rest, err);
    if (status != TAMIS_OK)
        return status;
    *stored_bytes_out = stored_bytes;
    walk->next_offset += stored_bytes;
    walk->left--;
    return TAMIS_OK;
}

/* After the last child: nothing may be left over. */
static tamis_status
walk_end(const struct walk *walk, tamis_error *err)
{
    return walk->left == 0 && tm_cursor_left(&walk->cursor) == 0 ? TAMIS_OK : bad_node(walk, err);
}

static tamis_status
load_node(struct loading *loading, tamis_file *file, enum tm_block_kind kind, uint64_t offset,
          uint64_t stored_bytes, struct tm_block **node_out, tamis_error *err)
{
    struct tm_place place = {loading->place->file, loading->place->data_id, offset, kind};
    uint64_t checksum;
    uint8_t bytes[8];
    tamis_status status;

    status = tm_block_load(loading->env, file, &place, stored_bytes, node_out, &checksum, err);
    if (status != TAMIS_OK)
        return status;
    tm_put_u64(bytes, checksum);
    status = tm_buf_append(loading->env, &loading->checksums, bytes, sizeof bytes, err);
    if (status != TAMIS_OK) {
        tm_block_unref(*node_out);
        *node_out = NULL;
    }
    return status;
}

/* All children of one leaf. `previous` is the last separator of the leaf before, and becomes this one's. */
static tamis_status
load_leaf(struct loading *loading, const struct tm_block *leaf, uint64_t leaf_offset,
          uint64_t *data_offset, struct tm_buf *separator, tamis_error *err)
{
    const struct tm_env *env = loading->env;
    struct walk walk;
    tamis_status status;

    status = walk_init(&walk, loading->place, leaf_offset, leaf, *data_offset, err);
    separator->length = 0;
    while (status == TAMIS_OK && walk.left > 0) {
        uint64_t begin = walk.next_offset;
        uint64_t stored_bytes;
        uint64_t end;
        size_t count = loading->ends.length / 8;
        tamis_slice before = tm_slice(NULL, 0);

        status = walk_next(env, &walk, separator, loading->place->data_bytes, &stored_bytes, err);
        if (status != TAMIS_OK)
            break;
        if (count > 0) {
            const uint64_t *ends = (const uint64_t *)loading->ends.data;
            uint64_t start = count > 1 ? ends[count - 2] : 0;

            before = tm_slice(loading->separators.data + start, (size_t)(ends[count - 1] - start));
        }
        if (count > 0 && tm_order_compare(&env->order, before,
                                          tm_slice(separator->data, separator->length)) > 0) // I2
            return bad_node(&walk, err);
        status = tm_buf_append(env, &loading->separators, separator->data, separator->length, err);
        if (status != TAMIS_OK)
            break;
        end = loading->separators.length;
        status = tm_buf_append(env, &loading->ends, &end, sizeof end, err);
        if (status != TAMIS_OK)
            break;
        status = tm_buf_append(env, &loading->offsets, &begin, sizeof begin, err);
    }
    if (status != TAMIS_OK)
        return status;
    *data_offset = walk.next_offset;
    return walk_end(&walk, err);
}

/* Lay the separators out for searching: one allocation, the common prefix taken off. */
static tamis_status
make_resident(struct loading *loading, size_t leaf_count, struct tm_index *index, tamis_error *err)
{
    const struct tm_env *env = loading->env;
    const uint8_t *separators = loading->separators.data;
    const uint64_t *ends = (const uint64_t *)loading->ends.data;
    size_t count = loading->ends.length / 8;
    uint64_t last_start = count > 1 ? ends[count - 2] : 0;
    bool bytewise = tm_order_is_bytewise(&env->order);
    // Separators ascend bytewise, so what the first and the last share is shared by all.
    size_t prefix = !bytewise ? 0
                              : tm_slice_shared(tm_slice(separators, (size_t)ends[0]),
                                                tm_slice(separators + last_start,
                                                         (size_t)(ends[count - 1] - last_start)));
    size_t bytes_total = loading->separators.length - (count - 1) * prefix;
    size_t memory_bytes = (3 * count + 2) * sizeof(uint64_t) + bytes_total;
    uint64_t *pieces;
    uint64_t *offsets;
    uint64_t *rest_ends;
    uint8_t *bytes;
    uint64_t used = 0;

    pieces = tm_alloc(env, memory_bytes);
    if (pieces == NULL)
        return TM_NO_MEMORY(err, memory_bytes);
    offsets = pieces + count;
    rest_ends = offsets + count + 1;
    bytes = (uint8_t *)(rest_ends + count + 1);

    memcpy(offsets, loading->offsets.data, count * sizeof *offsets);
    offsets[count] = loading->place->data_bytes;
    rest_ends[0] = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t start = (i > 0 ? ends[i - 1] : 0) + prefix;
        size_t length = (size_t)(ends[i] - start);

        if (length > 0)
            memcpy(bytes + used, separators + start, length);
        pieces[i] = bytewise ? tm_piece(tm_slice(bytes + used, length), 0) : 0;
        used += length;
        rest_ends[i + 1] = used;
    }
    if (prefix > 0)
        memcpy(bytes + used, separators, prefix);

    *index = (struct tm_index){
        .order = &env->order,
        .count = count,
        .leaf_count = leaf_count,
        .pieces = pieces,
        .offsets = offsets,
        .ends = rest_ends,
        .bytes = bytes,
        .prefix = tm_slice(bytes + used, prefix),
        .memory = pieces,
        .memory_bytes = memory_bytes,
    };
    return TAMIS_OK;
}

tamis_status
tm_index_load(const struct tm_env *env, tamis_file *file, const struct tm_index_place *place,
              struct tm_index *index, tamis_error *err)
{
    struct loading loading = {.env = env, .place = place};
    struct tm_block *top = NULL;
    struct tm_block *leaf = NULL;
    struct tm_buf top_separator = {0};
    struct tm_buf separator = {0};
    struct walk walk;
    uint64_t top_offset;
    uint64_t data_offset = 0;
    uint64_t checksum;
    uint8_t top_checksum[8];
    size_t leaf_count = 0;
    tamis_status status;

    if (place->top_bytes < TM_TRAILER_BYTES || place->top_bytes > place->bytes)
        return TM_FAIL(err, TAMIS_CORRUPT,
                       "%s: index at %" PRIu64 ": top expected within %" PRIu64
                       " bytes, found %" PRIu64,
                       place->file, place->offset, place->bytes, place->top_bytes);
    top_offset = place->offset + (place->bytes - place->top_bytes);
    status = load_node(&loading, file, TM_BLOCK_INDEX_TOP, top_offset, place->top_bytes, &top, err);
    if (status != TAMIS_OK)
        goto out;
    memcpy(top_checksum, loading.checksums.data, 8); // read first, listed last
    loading.checksums.length = 0;

    status = walk_init(&walk, place, top_offset, top, place->offset, err);
    while (status == TAMIS_OK && walk.left > 0) {
        uint64_t leaf_offset = walk.next_offset;
        uint64_t stored_bytes;

        status = walk_next(env, &walk, &top_separator, top_offset, &stored_bytes, err);
        if (status != TAMIS_OK)
            break;
        status =
            load_node(&loading, file, TM_BLOCK_INDEX_LEAF, leaf_offset, stored_bytes, &leaf, err);
        if (status != TAMIS_OK)
            break;
        status = load_leaf(&loading, leaf, leaf_offset, &data_offset, &separator, err);
        tm_block_unref(leaf);
        leaf = NULL;
        leaf_count++;
        if (status == TAMIS_OK &&
            !tm_slice_equal(tm_slice(separator.data, separator.length),
                            tm_slice(top_separator.data, top_separator.length)))
            status =
                bad_node(&walk, err); // a leaf ends with the separator that the top knows it by
    }
    if (status != TAMIS_OK)
        goto out;
    status = walk_end(&walk, err);
    if (status != TAMIS_OK)
        goto out;
    if (walk.next_offset != top_offset || data_offset != place->data_bytes) { // I3
        status = TM_FAIL(err, TAMIS_CORRUPT,
                         "%s: index at %" PRIu64 ": leaves expected to end at %" PRIu64
                         " and data at %" PRIu64 ", found %" PRIu64 " and %" PRIu64,
                         place->file, place->offset, top_offset, place->data_bytes,
                         walk.next_offset, data_offset);
        goto out;
    }
    status = tm_buf_append(env, &loading.checksums, top_checksum, 8, err);
    if (status != TAMIS_OK)
        goto out;
    checksum = tm_hash64(loading.checksums.data, loading.checksums.length, 0);
    if (checksum != place->checksum) {
        status = TM_FAIL(err, TAMIS_CORRUPT,
                         "%s: index at %" PRIu64 ": section checksum expected %016" PRIx64
                         ", found %016" PRIx64,
                         place->file, place->offset, place->checksum, checksum);
        goto out;
    }
    status = make_resident(&loading, leaf_count, index, err);

out:
    tm_block_unref(top);
    tm_buf_release(env, &top_separator);
    tm_buf_release(env, &separator);
    tm_buf_release(env, &loading.separators);
    tm_buf_release(env, &loading.ends);
    tm_buf_release(env, &loading.offsets);
    tm_buf_release(env, &loading.checksums);
    return status;
}

/* ---- Searching ------------------------------------------------------------------------------------- */

tamis_slice
tm_index_separator_rest(const struct tm_index *index, size_t i)
{
    return tm_slice(index->bytes + index->ends[i], (size_t)(index->ends[i + 1] - index->ends[i]));
}

int
tm_index_compare(const struct tm_index *index, size_t i, tamis_slice key)
{
    size_t prefix = index->prefix.length;
    size_t shared = key.length < prefix ? key.length : prefix;
    int order = shared > 0 ? memcmp(index->prefix.data, key.data, shared) : 0;

    if (order != 0)
        return order;
    if (key.length < prefix)
        return 1;
    return tm_order_compare(
        index->order, tm_index_separator_rest(index, i),
        key.length > 0 ? tm_slice((const uint8_t *)key.data + prefix, key.length - prefix) : key);
}

bool
tm_index_separator_is(const struct tm_index *index, size_t i, tamis_slice key)
{
    return tm_index_compare(index, i, key) == 0;
}

size_t
tm_index_find(const struct tm_index *index, tamis_slice key)
{
    size_t prefix = index->prefix.length;
    size_t shared = key.length < prefix ? key.length : prefix;
    int order = shared > 0 ? memcmp(index->prefix.data, key.data, shared) : 0;
    const uint64_t *base = index->pieces;
    size_t length = index->count;
    size_t low;
    size_t high;
    tamis_slice rest;
    uint64_t piece;

    if (order > 0 || (order == 0 && key.length < prefix))
        return 0;
    if (order < 0)
        return index->count;
    rest = key.length > 0 ? tm_slice((const uint8_t *)key.data + prefix, key.length - prefix) : key;
    piece = tm_order_is_bytewise(index->order) ? tm_piece(rest, 0) : 0;

    // Halve without a branch on the comparison: it is a coin toss that no predictor learns.
    while (length > 1) {
        size_t half = length / 2;

        base += base[half - 1] < piece ? half : 0;
        length -= half;
    }
    low = (size_t)(base - index->pieces);
    if (low < index->count && *base < piece)
        low++;

    // I4: among equal pieces, whole separators decide. Find where they end by doubling, then halve.
    if (low == index->count || index->pieces[low] != piece)
        return low;
    high = low + 1;
    for (size_t step = 1; high < index->count && index->pieces[high] == piece; step *= 2) {
        if (tm_order_compare(index->order, tm_index_separator_rest(index, high - 1), rest) >= 0)
            break;
        low = high;
        high = step < index->count - high ? high + step : index->count;
    }
    // All below low are < key. high is count, or has a larger piece or may be >= key.
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (tm_order_compare(index->order, tm_index_separator_rest(index, middle), rest) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void
tm_index_release(const struct tm_env *env, struct tm_index *index)
{
    tm_release(env, index->memory, index->memory_bytes);
    memset(index, 0, sizeof *index);
}
