/* SPDX-License-Identifier: MIT
 *
 * tests/support/sim_os.c -- the machine in memory that sim_os.h describes.
 *
 *   struct dir    entries (current), durable_entries, entry edits since the last sync_dir
 *   struct inode  current, durable, byte edits since the last sync; regions mapped from it
 *   crash         image of an inode = durable + some edits     image of a directory = durable_entries + some
 *
 * Invariants
 *   M1  durable with all edits applied in order is current, except for bytes that a SYNC fault dropped.
 *   M2  Bytes stored into a region become edits when the inode is next looked at (absorb_regions).
 *   M3  Descriptor numbers are never used twice, so that a stale one is noticed.
 *
 * Threads  one mutex around each call. Regions are read while the program may store into them, as the kernel
 *          does; those reads are hidden from the thread sanitizer, everything else is visible to it.
 * Not here: threads that take turns (baton.c); durability recipes (sstable/fs_posix.c).
 */
#include "tests/support/sim_os.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/rng.h"

enum {
    PAGE_BYTES = 4096,
    DESCRIPTOR_FIRST = 1000, // no number that a real descriptor has by accident
};

struct bytes {
    uint8_t *data;
    size_t size;
    size_t capacity;
};

/* A change of a file's bytes that is not durable: a write, or (data empty) a new size. */
struct byte_edit {
    bool is_size;
    uint64_t offset; // of a write; of a size edit: the new size
    struct bytes data;
};

struct region {
    uint8_t *address; // owned by the simulator, freed at unmap
    uint64_t offset;
    size_t length;
    struct region *next; // in inode
};

struct inode {
    uint64_t number;
    enum tm_os_class file_class;
    struct bytes current;
    struct bytes durable;
    struct byte_edit *edits;
    size_t edit_count;
    size_t edit_capacity;
    struct region *regions;
    bool sync_fails_next; // a late error waits (SIM_SYNC_LATE)
    bool reachable;       // scratch of mark_in_use() and collect_garbage()
    struct inode *image;  // scratch of clones and crashes
    struct inode *next;   // in sim
};

struct entry {
    char *name;
    struct inode *inode;
};

struct entries {
    struct entry *list;
    size_t count;
    size_t capacity;
};

enum entry_edit_kind { ENTRY_CREATE, ENTRY_RENAME, ENTRY_UNLINK };

struct entry_edit {
    enum entry_edit_kind kind;
    char *name;
    char *name_to; // of a rename
    struct inode *inode;
};

struct dir {
    char *path;
    bool exists;
    bool exists_durably;
    struct entries entries;
    struct entries durable_entries;
    struct entry_edit *edits;
    size_t edit_count;
    size_t edit_capacity;
    struct dir *next; // in sim
};

struct descriptor {
    bool open;
    bool writable;
    unsigned locks;      // bit 1 << enum tm_os_lock: held through this descriptor
    struct dir *dir;     // of a directory, and the directory of a file
    struct inode *inode; // NULL: a directory
    enum tm_os_class file_class;
    char *name;
};

struct fault_rule {
    struct sim_fault fault;
    _Atomic uint64_t matched;
    _Atomic uint64_t fired;
    struct fault_rule *next;
};

struct sim {
    struct tm_os os;
    pthread_mutex_t mutex;
    struct rng rng;
    struct dir *dirs;
    struct inode *inodes;
    uint64_t inode_number_next;
    struct descriptor *descriptors;
    size_t descriptor_count;
    size_t descriptor_capacity;
    size_t mapping_count;
    struct fault_rule *faults; // in order of addition
    size_t fault_count;
    _Atomic uint64_t call_count;
    _Atomic uint64_t stop_at;
    _Atomic bool stopped;
    _Atomic uint64_t space_bytes;
    _Atomic uint64_t fork_generation;
    void (*before)(void *arg);
    void (*after)(void *arg, const struct sim_call *call);
    void *watch_arg;
};

/* ---- Memory (S4) ---------------------------------------------------------------------------------------- */

static void *
need(void *p)
{
    if (p == NULL) {
        fprintf(stderr, "simulator: no memory\n");
        abort();
    }
    return p;
}

static char *
copy_text(const char *text)
{
    return need(strdup(text));
}

/* Room for one more element; returns the (moved) array. */
static void *
grow(void *list, size_t count, size_t *capacity, size_t element_bytes)
{
    if (count < *capacity)
        return list;
    *capacity = *capacity == 0 ? 8 : *capacity * 2;
    return need(realloc(list, *capacity * element_bytes));
}

/* ---- Bytes ---------------------------------------------------------------------------------------------- */

/* New bytes are zeros. */
static void
bytes_resize(struct bytes *bytes, uint64_t size)
{
    if (size > bytes->capacity) {
        size_t capacity = bytes->capacity * 2 > size ? bytes->capacity * 2 : (size_t)size;

        bytes->data = need(realloc(bytes->data, capacity));
        bytes->capacity = capacity;
    }
    if (size > bytes->size)
        memset(bytes->data + bytes->size, 0, (size_t)size - bytes->size);
    bytes->size = (size_t)size;
}

static void
bytes_write(struct bytes *bytes, uint64_t offset, const uint8_t *data, size_t length)
{
    if (length == 0)
        return;
    if (offset + length > bytes->size)
        bytes_resize(bytes, offset + length);
    memcpy(bytes->data + offset, data, length);
}

static void
bytes_assign(struct bytes *bytes, const struct bytes *from)
{
    bytes_resize(bytes, 0);
    bytes_write(bytes, 0, from->data, from->size);
}

static void
bytes_free(struct bytes *bytes)
{
    free(bytes->data);
    memset(bytes, 0, sizeof *bytes);
}

/* ---- Inodes --------------------------------------------------------------------------------------------- */

static struct inode *
inode_create(struct sim *sim, enum tm_os_class file_class)
{
    struct inode *inode = need(calloc(1, sizeof *inode));

    inode->number = ++sim->inode_number_next;
    inode->file_class = file_class;
    inode->next = sim->inodes;
    sim->inodes = inode;
    return inode;
}

static void
inode_forget_edits(struct inode *inode)
{
    for (size_t i = 0; i < inode->edit_count; i++)
        bytes_free(&inode->edits[i].data);
    inode->edit_count = 0;
}

static void
inode_free(struct inode *inode)
{
    inode_forget_edits(inode);
    free(inode->edits);
    bytes_free(&inode->current);
    bytes_free(&inode->durable);
    while (inode->regions != NULL) {
        struct region *region = inode->regions;

        inode->regions = region->next;
        free(region->address);
        free(region);
    }
    free(inode);
}

static struct byte_edit *
inode_add_edit(struct inode *inode, bool is_size, uint64_t offset)
{
    struct byte_edit *edit;

    inode->edits =
        grow(inode->edits, inode->edit_count, &inode->edit_capacity, sizeof *inode->edits);
    edit = &inode->edits[inode->edit_count++];
    memset(edit, 0, sizeof *edit);
    edit->is_size = is_size;
    edit->offset = offset;
    return edit;
}

static void
inode_write(struct inode *inode, uint64_t offset, const uint8_t *data, size_t length)
{
    struct byte_edit *last = inode->edit_count != 0 ? &inode->edits[inode->edit_count - 1] : NULL;

    if (length == 0)
        return;
    bytes_write(&inode->current, offset, data, length);
    // Writes that continue each other are one edit: an image may cut it anywhere in any case.
    if (last == NULL || last->is_size || last->offset + last->data.size != offset)
        last = inode_add_edit(inode, false, offset);
    bytes_write(&last->data, last->data.size, data, length);
}

static void
inode_set_size(struct inode *inode, uint64_t size)
{
    if (size == inode->current.size)
        return;
    bytes_resize(&inode->current, size);
    inode_add_edit(inode, true, size);
}

static void
edit_apply(const struct byte_edit *edit, struct bytes *bytes)
{
    if (edit->is_size)
        bytes_resize(bytes, edit->offset);
    else
        bytes_write(bytes, edit->offset, edit->data.data, edit->data.size);
}

static void
inode_make_durable(struct inode *inode)
{
    for (size_t i = 0; i < inode->edit_count; i++)
        edit_apply(&inode->edits[i], &inode->durable);
    inode_forget_edits(inode);
}

/* ---- Mapped regions ------------------------------------------------------------------------------------- */

#if defined(__SANITIZE_THREAD__)
#define READS_WHILE_OTHERS_STORE __attribute__((no_sanitize("thread"), noinline))
#else
#define READS_WHILE_OTHERS_STORE
#endif

/* One page as it is at this moment. Whole words, volatile: so that it is no call of memcpy, which the thread
 * sanitizer would see. */
READS_WHILE_OTHERS_STORE static void
read_page(uint64_t *to, const uint8_t *page)
{
    const volatile uint64_t *from = (const volatile uint64_t *)(const volatile void *)page;

    for (size_t i = 0; i < PAGE_BYTES / sizeof *to; i++)
        to[i] = from[i];
}

/* The same in the other direction: a pwrite into a mapped page. */
READS_WHILE_OTHERS_STORE static void
store_bytes(uint8_t *to, const uint8_t *from, size_t length)
{
    for (size_t i = 0; i < length; i++)
        ((volatile uint8_t *)to)[i] = from[i];
}

static void
absorb_page(struct inode *inode, uint64_t offset, const uint8_t *page)
{
    const uint8_t *current = inode->current.data + offset;
    size_t end = PAGE_BYTES;
    size_t first = 0;

    if (offset >= inode->current.size)
        return;
    if (end > inode->current.size - offset)
        end = (size_t)(inode->current.size - offset); // stores beyond the end of a file are lost
    if (memcmp(current, page, end) == 0)
        return;
    while (current[first] == page[first])
        first++;
    while (current[end - 1] == page[end - 1])
        end--;
    inode_write(inode, offset + first, page + first, end - first);
}

/* M2 */
static void
absorb_regions(struct sim *sim, struct inode *inode)
{
    uint64_t page[PAGE_BYTES / sizeof(uint64_t)];

    if (atomic_load(&sim->stopped)) // S3: absorbed when it stopped
        return;
    for (struct region *region = inode->regions; region != NULL; region = region->next) {
        for (size_t at = 0; at < region->length; at += PAGE_BYTES) {
            read_page(page, region->address + at);
            absorb_page(inode, region->offset + at, (const uint8_t *)page);
        }
    }
}

static void
absorb_all_regions(struct sim *sim)
{
    for (struct inode *inode = sim->inodes; inode != NULL; inode = inode->next)
        absorb_regions(sim, inode);
}

/* After a write past the mappings: they see it. */
static void
show_in_regions(struct inode *inode, uint64_t offset, const uint8_t *data, size_t length)
{
    for (struct region *region = inode->regions; region != NULL; region = region->next) {
        uint64_t start = offset > region->offset ? offset : region->offset;
        uint64_t end = offset + length < region->offset + region->length
                           ? offset + length
                           : region->offset + region->length;

        if (start < end)
            store_bytes(region->address + (start - region->offset), data + (start - offset),
                        (size_t)(end - start));
    }
}

/* ---- Directories ---------------------------------------------------------------------------------------- */

static struct entry *
entries_find(struct entries *entries, const char *name)
{
    for (size_t i = 0; i < entries->count; i++) {
        if (strcmp(entries->list[i].name, name) == 0)
            return &entries->list[i];
    }
    return NULL;
}

static void
entries_set(struct entries *entries, const char *name, struct inode *inode)
{
    struct entry *entry = entries_find(entries, name);

    if (entry == NULL) {
        entries->list =
            grow(entries->list, entries->count, &entries->capacity, sizeof *entries->list);
        entry = &entries->list[entries->count++];
        entry->name = copy_text(name);
    }
    entry->inode = inode;
}

/* Remove `name` if it is a name of `inode`. */
static void
entries_unset(struct entries *entries, const char *name, const struct inode *inode)
{
    struct entry *entry = entries_find(entries, name);

    if (entry == NULL || entry->inode != inode)
        return;
    free(entry->name);
    entries->count--;
    memmove(entry, entry + 1, sizeof *entry * (size_t)(entries->list + entries->count - entry));
}

static void
entries_clear(struct entries *entries)
{
    for (size_t i = 0; i < entries->count; i++)
        free(entries->list[i].name);
    entries->count = 0;
}

static void
entries_assign(struct entries *entries, const struct entries *from)
{
    entries_clear(entries);
    for (size_t i = 0; i < from->count; i++)
        entries_set(entries, from->list[i].name, from->list[i].inode);
}

static void
entries_free(struct entries *entries)
{
    entries_clear(entries);
    free(entries->list);
}

static void
entry_edit_apply(const struct entry_edit *edit, struct entries *entries)
{
    switch (edit->kind) {
    case ENTRY_CREATE:
        entries_set(entries, edit->name, edit->inode);
        break;
    case ENTRY_RENAME:
        entries_unset(entries, edit->name, edit->inode);
        entries_set(entries, edit->name_to, edit->inode);
        break;
    case ENTRY_UNLINK:
        entries_unset(entries, edit->name, edit->inode);
        break;
    }
}

static void
dir_forget_edits(struct dir *dir)
{
    for (size_t i = 0; i < dir->edit_count; i++) {
        free(dir->edits[i].name);
        free(dir->edits[i].name_to);
    }
    dir->edit_count = 0;
}

/* Change the current names, and remember how. */
static void
dir_edit(struct dir *dir, enum entry_edit_kind kind, const char *name, const char *name_to,
         struct inode *inode)
{
    struct entry_edit *edit;

    dir->edits = grow(dir->edits, dir->edit_count, &dir->edit_capacity, sizeof *dir->edits);
    edit = &dir->edits[dir->edit_count++];
    edit->kind = kind;
    edit->name = copy_text(name);
    edit->name_to = name_to != NULL ? copy_text(name_to) : NULL;
    edit->inode = inode;
    entry_edit_apply(edit, &dir->entries);
}

static void
dir_make_durable(struct dir *dir)
{
    entries_assign(&dir->durable_entries, &dir->entries);
    dir_forget_edits(dir);
}

/* Bytes of `path` without slashes at its end. */
static size_t
path_length(const char *path)
{
    size_t length = strlen(path);

    while (length > 1 && path[length - 1] == '/')
        length--;
    return length;
}

/* Bytes of the parent's path: "a/b" -> 1, "a" -> 0, "/a" -> 0. */
static size_t
parent_length(const char *path)
{
    size_t length = path_length(path);

    while (length > 0 && path[length - 1] != '/')
        length--;
    while (length > 0 && path[length - 1] == '/')
        length--;
    return length;
}

static struct dir *
dir_find(struct sim *sim, const char *path, size_t length)
{
    for (struct dir *dir = sim->dirs; dir != NULL; dir = dir->next) {
        if (strlen(dir->path) == length && memcmp(dir->path, path, length) == 0)
            return dir;
    }
    return NULL;
}

static struct dir *
dir_find_existing(struct sim *sim, const char *path)
{
    struct dir *dir = dir_find(sim, path, path_length(path));

    return dir != NULL && dir->exists ? dir : NULL;
}

static bool
parent_exists(struct sim *sim, const char *path)
{
    size_t length = parent_length(path);
    struct dir *parent = dir_find(sim, path, length);

    return length == 0 || (length == 1 && path[0] == '.') || (parent != NULL && parent->exists);
}

/* Whether the path is that of a file. */
static bool
is_file(struct sim *sim, const char *path)
{
    struct dir *parent = dir_find(sim, path, parent_length(path));
    char name[256];
    size_t length = path_length(path);
    size_t start = length;

    while (start > 0 && path[start - 1] != '/')
        start--;
    snprintf(name, sizeof name, "%.*s", (int)(length - start), path + start);
    return parent != NULL && entries_find(&parent->entries, name) != NULL;
}

/* Make it, or find the one that was removed: its old names may still come back in an image. */
static struct dir *
dir_create(struct sim *sim, const char *path)
{
    size_t length = path_length(path);
    struct dir *dir = dir_find(sim, path, length);

    if (dir == NULL) {
        dir = need(calloc(1, sizeof *dir));
        dir->path = need(strndup(path, length));
        dir->next = sim->dirs;
        sim->dirs = dir;
    }
    dir->exists = true;
    return dir;
}

/* Mark the inodes that the program can reach, by a name, a descriptor or a mapping. */
static void
mark_in_use(struct sim *sim)
{
    for (struct inode *inode = sim->inodes; inode != NULL; inode = inode->next)
        inode->reachable = inode->regions != NULL;
    for (struct dir *dir = sim->dirs; dir != NULL; dir = dir->next)
        for (size_t i = 0; i < dir->entries.count; i++)
            dir->entries.list[i].inode->reachable = true;
    for (size_t i = 0; i < sim->descriptor_count; i++) {
        if (sim->descriptors[i].open && sim->descriptors[i].inode != NULL)
            sim->descriptors[i].inode->reachable = true;
    }
}

/* Free inodes that no name, no edit and no descriptor can reach. */
static void
collect_garbage(struct sim *sim)
{
    struct inode **link = &sim->inodes;

    mark_in_use(sim);
    for (struct dir *dir = sim->dirs; dir != NULL; dir = dir->next) {
        for (size_t i = 0; i < dir->durable_entries.count; i++)
            dir->durable_entries.list[i].inode->reachable = true;
        for (size_t i = 0; i < dir->edit_count; i++)
            dir->edits[i].inode->reachable = true;
    }
    while (*link != NULL) {
        struct inode *inode = *link;

        if (inode->reachable) {
            link = &inode->next;
        } else {
            *link = inode->next;
            inode_free(inode);
        }
    }
}

/* ---- The frame of each call ------------------------------------------------------------------------------ */

struct frame {
    struct sim *sim;
    struct sim_call call;
    enum sim_effect effect; // 0: none
};

static bool
effect_applies(enum sim_effect effect, enum sim_op op, uint64_t length)
{
    switch (effect) {
    case SIM_ERROR:
        return true;
    case SIM_SHORT:
        return (op == SIM_PREAD || op == SIM_PWRITE) && length >= 2;
    case SIM_FLIP:
        return op == SIM_PREAD && length >= 1;
    case SIM_SYNC_DROPS:
    case SIM_SYNC_FAILS_DONE:
    case SIM_SYNC_LATE:
        return op == SIM_SYNC;
    }
    return false;
}

static void
choose_fault(struct frame *frame)
{
    const struct sim_call *call = &frame->call;

    for (struct fault_rule *rule = frame->sim->faults; rule != NULL; rule = rule->next) {
        const struct sim_fault *fault = &rule->fault;
        uint64_t matched;

        if ((fault->op != SIM_OP_ANY && fault->op != call->op) ||
            (fault->file_class != 0 && fault->file_class != call->file_class) ||
            !effect_applies(fault->effect, call->op, call->length))
            continue;
        matched = atomic_fetch_add(&rule->matched, 1) + 1;
        if (frame->effect != 0 || matched < fault->nth || (matched > fault->nth && !fault->sticky))
            continue;
        atomic_fetch_add(&rule->fired, 1);
        frame->effect = fault->effect;
        if (fault->effect == SIM_ERROR)
            frame->call.result = -fault->os_error;
    }
}

/* With the mutex held: count the call, stop, choose a fault. True: go on. False: frame->call.result is what it
 * gives. */
static bool
begin(struct frame *frame, enum sim_op op, enum tm_os_class file_class, const char *name,
      uint64_t offset, uint64_t length)
{
    struct sim *sim = frame->sim;
    uint64_t stop_at = atomic_load(&sim->stop_at);

    frame->call.number = atomic_fetch_add(&sim->call_count, 1) + 1;
    frame->call.op = op;
    frame->call.file_class = file_class;
    frame->call.name = name;
    frame->call.offset = offset;
    frame->call.length = length;
    if (stop_at != 0 && frame->call.number >= stop_at && !atomic_load(&sim->stopped)) {
        absorb_all_regions(sim);
        atomic_store(&sim->stopped, true);
    }
    if (atomic_load(&sim->stopped)) {
        frame->call.result = -EIO;
        return false;
    }
    choose_fault(frame);
    return frame->effect != SIM_ERROR;
}

/* Take the mutex for a call; leave() gives it back. */
static void
take_turn(struct frame *frame, void *ctx)
{
    struct sim *sim = ctx;

    memset(frame, 0, sizeof *frame);
    frame->sim = sim;
    if (sim->before != NULL)
        sim->before(sim->watch_arg);
    pthread_mutex_lock(&sim->mutex);
}

/* Enter a call that names what it is about. In either case leave() follows. */
static bool
enter(struct frame *frame, void *ctx, enum sim_op op, enum tm_os_class file_class, const char *name,
      uint64_t offset, uint64_t length)
{
    take_turn(frame, ctx);
    return begin(frame, op, file_class, name, offset, length);
}

static int64_t
leave(struct frame *frame, int64_t result)
{
    struct sim *sim = frame->sim;

    frame->call.result = result;
    if (sim->after != NULL)
        sim->after(sim->watch_arg, &frame->call);
    pthread_mutex_unlock(&sim->mutex);
    return result;
}

/* With the mutex held: the open descriptor, or NULL (M3). */
static struct descriptor *
descriptor_of(struct sim *sim, int fd)
{
    size_t index = (size_t)(fd - DESCRIPTOR_FIRST);

    if (fd < DESCRIPTOR_FIRST || index >= sim->descriptor_count || !sim->descriptors[index].open)
        return NULL;
    return &sim->descriptors[index];
}

/* Enter a call on a descriptor; *found is a copy, because the array may move, and zeros when there is none. */
static bool
enter_with_descriptor(struct frame *frame, struct descriptor *found, void *ctx, enum sim_op op,
                      int fd, uint64_t offset, uint64_t length)
{
    struct descriptor *descriptor;

    take_turn(frame, ctx);
    descriptor = descriptor_of(frame->sim, fd);
    memset(found, 0, sizeof *found);
    if (descriptor != NULL)
        *found = *descriptor;
    if (!begin(frame, op, found->file_class, descriptor != NULL ? found->name : "(closed)", offset,
               length))
        return false;
    if (descriptor == NULL)
        frame->call.result = -EBADF;
    return descriptor != NULL;
}

static int
add_descriptor(struct sim *sim, struct dir *dir, struct inode *inode, enum tm_os_class file_class,
               const char *name, bool writable)
{
    struct descriptor *descriptor;

    sim->descriptors = grow(sim->descriptors, sim->descriptor_count, &sim->descriptor_capacity,
                            sizeof *sim->descriptors);
    descriptor = &sim->descriptors[sim->descriptor_count++];
    descriptor->open = true;
    descriptor->writable = writable;
    descriptor->locks = 0;
    descriptor->dir = dir;
    descriptor->inode = inode;
    descriptor->file_class = file_class;
    descriptor->name = copy_text(name);
    return DESCRIPTOR_FIRST + (int)(sim->descriptor_count - 1);
}

/* Removed files do not count, also while a power cut could bring them back: file systems commit what is pending before
 * they say that they are full. */
static uint64_t
space_used(struct sim *sim)
{
    uint64_t used = 0;

    mark_in_use(sim);
    for (const struct inode *inode = sim->inodes; inode != NULL; inode = inode->next)
        if (inode->reachable)
            used += inode->current.size;
    return used;
}

/* How many of the bytes that a file is to grow by there is room for. */
static uint64_t
space_for(struct sim *sim, uint64_t growth)
{
    uint64_t limit = atomic_load(&sim->space_bytes);
    uint64_t used;

    if (limit == 0 || growth == 0)
        return growth;
    used = space_used(sim);
    if (used >= limit)
        return 0;
    return limit - used < growth ? limit - used : growth;
}

/* ---- The calls: directories ------------------------------------------------------------------------------ */

static int
sim_open_dir(void *ctx, const char *path)
{
    struct sim *sim = ctx;
    struct frame frame;
    struct dir *dir;
    int result;

    if (!enter(&frame, ctx, SIM_OPEN_DIR, TM_OS_CLASS_DIR, path, 0, 0))
        return (int)leave(&frame, frame.call.result);
    dir = dir_find_existing(sim, path);
    if (dir != NULL)
        result = add_descriptor(sim, dir, NULL, TM_OS_CLASS_DIR, path, false);
    else
        result = is_file(sim, path) ? -ENOTDIR : -ENOENT;
    return (int)leave(&frame, result);
}

static int
sim_make_dir(void *ctx, const char *path)
{
    struct sim *sim = ctx;
    struct frame frame;
    int result = 0;

    if (!enter(&frame, ctx, SIM_MAKE_DIR, TM_OS_CLASS_DIR, path, 0, 0))
        return (int)leave(&frame, frame.call.result);
    if (dir_find_existing(sim, path) != NULL || is_file(sim, path))
        result = -EEXIST;
    else if (!parent_exists(sim, path))
        result = -ENOENT;
    else
        dir_create(sim, path);
    return (int)leave(&frame, result);
}

static int
sim_remove_dir(void *ctx, const char *path)
{
    struct sim *sim = ctx;
    struct frame frame;
    struct dir *dir;
    int result = 0;

    if (!enter(&frame, ctx, SIM_REMOVE_DIR, TM_OS_CLASS_DIR, path, 0, 0))
        return (int)leave(&frame, frame.call.result);
    dir = dir_find_existing(sim, path);
    if (dir == NULL)
        result = is_file(sim, path) ? -ENOTDIR : -ENOENT;
    else if (dir->entries.count != 0)
        result = -ENOTEMPTY;
    else
        dir->exists = false;
    return (int)leave(&frame, result);
}

static int
sim_sync_parent(void *ctx, const char *path)
{
    struct sim *sim = ctx;
    struct frame frame;
    size_t length;

    if (!enter(&frame, ctx, SIM_SYNC_PARENT, TM_OS_CLASS_DIR, path, 0, 0))
        return (int)leave(&frame, frame.call.result);
    if (dir_find_existing(sim, path) == NULL)
        return (int)leave(&frame, -ENOENT);
    length = parent_length(path);
    for (struct dir *dir = sim->dirs; dir != NULL; dir = dir->next) {
        if (parent_length(dir->path) == length && memcmp(dir->path, path, length) == 0)
            dir->exists_durably = dir->exists;
    }
    return (int)leave(&frame, 0);
}

static int
sim_sync_dir(void *ctx, int fd)
{
    struct sim *sim = ctx;
    struct descriptor found;
    struct frame frame;

    if (!enter_with_descriptor(&frame, &found, ctx, SIM_SYNC_DIR, fd, 0, 0))
        return (int)leave(&frame, frame.call.result);
    dir_make_durable(found.dir);
    collect_garbage(sim);
    return (int)leave(&frame, 0);
}

static int
sim_list(void *ctx, int fd, bool (*visit)(void *arg, const char *name), void *arg)
{
    struct sim *sim = ctx;
    struct descriptor found;
    struct frame frame;
    size_t count;
    char **names;
    bool go_on = true;

    if (!enter_with_descriptor(&frame, &found, ctx, SIM_LIST, fd, 0, 0))
        return (int)leave(&frame, frame.call.result);
    count = found.dir->entries.count;
    names = need(calloc(count + 1, sizeof *names));
    for (size_t i = 0; i < count; i++) {
        size_t other = rng_below(&sim->rng, i + 1); // no order is promised, so none is kept

        names[i] = names[other];
        names[other] = copy_text(found.dir->entries.list[i].name);
    }
    leave(&frame, 0);
    for (size_t i = 0; i < count; i++) {
        go_on = go_on && visit(arg, names[i]);
        free(names[i]);
    }
    free(names);
    return 0;
}

static int
sim_rename(void *ctx, int fd, const char *from, const char *to)
{
    struct descriptor found;
    struct entry *entry;
    struct frame frame;
    bool entered = enter_with_descriptor(&frame, &found, ctx, SIM_RENAME, fd, 0, 0);

    frame.call.name = from;
    frame.call.name_to = to;
    if (!entered)
        return (int)leave(&frame, frame.call.result);
    entry = entries_find(&found.dir->entries, from);
    if (entry == NULL)
        return (int)leave(&frame, -ENOENT);
    dir_edit(found.dir, ENTRY_RENAME, from, to, entry->inode);
    return (int)leave(&frame, 0);
}

static int
sim_link(void *ctx, int fd, const char *name, int fd_to, enum tm_os_class file_class)
{
    struct sim *sim = ctx;
    struct descriptor *from;
    struct descriptor *to;
    struct entry *entry;
    struct frame frame;

    if (!enter(&frame, ctx, SIM_LINK, file_class, name, 0, 0))
        return (int)leave(&frame, frame.call.result);
    from = descriptor_of(sim, fd);
    to = descriptor_of(sim, fd_to);
    if (from == NULL || to == NULL)
        return (int)leave(&frame, -EBADF);
    entry = entries_find(&from->dir->entries, name);
    if (entry == NULL || !to->dir->exists)
        return (int)leave(&frame, -ENOENT);
    if (entries_find(&to->dir->entries, name) != NULL)
        return (int)leave(&frame, -EEXIST);
    dir_edit(to->dir, ENTRY_CREATE, name, NULL, entry->inode);
    return (int)leave(&frame, 0);
}

static int
sim_remove(void *ctx, int fd, const char *name, enum tm_os_class file_class)
{
    struct sim *sim = ctx;
    struct descriptor *found;
    struct entry *entry;
    struct frame frame;

    if (!enter(&frame, ctx, SIM_REMOVE, file_class, name, 0, 0))
        return (int)leave(&frame, frame.call.result);
    found = descriptor_of(sim, fd);
    if (found == NULL)
        return (int)leave(&frame, -EBADF);
    entry = entries_find(&found->dir->entries, name);
    if (entry == NULL)
        return (int)leave(&frame, -ENOENT);
    dir_edit(found->dir, ENTRY_UNLINK, name, NULL, entry->inode);
    return (int)leave(&frame, 0);
}

/* ---- The calls: files ------------------------------------------------------------------------------------ */

static int
sim_open(void *ctx, int fd, const char *name, int flags, enum tm_os_class file_class)
{
    struct sim *sim = ctx;
    struct entry *entry;
    struct inode *inode;
    struct frame frame;
    struct dir *dir;

    if (!enter(&frame, ctx, SIM_OPEN, file_class, name, 0, 0))
        return (int)leave(&frame, frame.call.result);
    if (descriptor_of(sim, fd) == NULL)
        return (int)leave(&frame, -EBADF);
    dir = descriptor_of(sim, fd)->dir;
    entry = entries_find(&dir->entries, name);
    if (entry != NULL && flags == TM_OS_CREATE_NEW)
        return (int)leave(&frame, -EEXIST);
    if (entry == NULL && (flags == TM_OS_READ || !dir->exists))
        return (int)leave(&frame, -ENOENT);
    inode = entry != NULL ? entry->inode : inode_create(sim, file_class);
    if (entry == NULL)
        dir_edit(dir, ENTRY_CREATE, name, NULL, inode);
    return (int)leave(&frame,
                      add_descriptor(sim, dir, inode, file_class, name, flags != TM_OS_READ));
}

static int
sim_close(void *ctx, int fd, enum tm_os_class file_class)
{
    struct sim *sim = ctx;
    struct descriptor found;
    struct frame frame;
    bool entered = enter_with_descriptor(&frame, &found, ctx, SIM_CLOSE, fd, 0, 0);

    (void)file_class;
    // As on Linux, a close that reports an error has closed all the same.
    if (found.open && !atomic_load(&sim->stopped))
        sim->descriptors[fd - DESCRIPTOR_FIRST].open = false; // and its locks are gone
    return (int)leave(&frame, entered ? 0 : frame.call.result);
}

static int
sim_stat(void *ctx, int fd, struct tm_os_stat *out)
{
    struct descriptor found;
    struct frame frame;

    if (!enter_with_descriptor(&frame, &found, ctx, SIM_STAT, fd, 0, 0))
        return (int)leave(&frame, frame.call.result);
    memset(out, 0, sizeof *out);
    out->device = 1;
    out->is_directory = found.inode == NULL;
    out->is_regular = found.inode != NULL;
    if (found.inode != NULL) {
        out->size = found.inode->current.size;
        out->inode = found.inode->number;
        for (size_t i = 0; i < found.dir->entries.count; i++)
            out->link_count += found.dir->entries.list[i].inode == found.inode;
    }
    return (int)leave(&frame, 0);
}

static ssize_t
sim_pread(void *ctx, int fd, void *buffer, size_t length, uint64_t offset,
          enum tm_os_class file_class)
{
    struct sim *sim = ctx;
    struct descriptor found;
    struct frame frame;

    (void)file_class;
    if (!enter_with_descriptor(&frame, &found, ctx, SIM_PREAD, fd, offset, length))
        return (ssize_t)leave(&frame, frame.call.result);
    absorb_regions(sim, found.inode);
    if (offset >= found.inode->current.size)
        return (ssize_t)leave(&frame, 0);
    if (frame.effect == SIM_SHORT)
        length /= 2;
    if (length > found.inode->current.size - offset)
        length = (size_t)(found.inode->current.size - offset);
    if (length != 0)
        memcpy(buffer, found.inode->current.data + offset, length);
    if (frame.effect == SIM_FLIP && length != 0) {
        uint64_t bit = rng_below(&sim->rng, (uint64_t)length * 8);

        ((uint8_t *)buffer)[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
    return (ssize_t)leave(&frame, (int64_t)length);
}

static ssize_t
sim_pwrite(void *ctx, int fd, const void *data, size_t length, uint64_t offset,
           enum tm_os_class file_class)
{
    struct sim *sim = ctx;
    struct descriptor found;
    struct frame frame;
    uint64_t size;

    (void)file_class;
    if (!enter_with_descriptor(&frame, &found, ctx, SIM_PWRITE, fd, offset, length))
        return (ssize_t)leave(&frame, frame.call.result);
    if (!found.writable)
        return (ssize_t)leave(&frame, -EBADF);
    absorb_regions(sim, found.inode);
    if (frame.effect == SIM_SHORT)
        length /= 2;
    size = found.inode->current.size;
    if (offset + length > size) {
        uint64_t growth = offset + length - size;
        uint64_t missing = growth - space_for(sim, growth);

        if (missing != 0 && missing >= length)
            return (ssize_t)leave(&frame, -ENOSPC);
        length -= (size_t)missing;
    }
    inode_write(found.inode, offset, data, length);
    show_in_regions(found.inode, offset, data, length);
    return (ssize_t)leave(&frame, (int64_t)length);
}

static int
sim_sync(void *ctx, int fd, enum tm_os_class file_class)
{
    struct sim *sim = ctx;
    struct descriptor found;
    struct frame frame;
    int result = 0;

    (void)file_class;
    if (!enter_with_descriptor(&frame, &found, ctx, SIM_SYNC, fd, 0, 0))
        return (int)leave(&frame, frame.call.result);
    absorb_regions(sim, found.inode);
    if (frame.effect == SIM_SYNC_DROPS || frame.effect == SIM_SYNC_LATE)
        inode_forget_edits(found.inode); // M1: current keeps what durable will never get
    else
        inode_make_durable(found.inode);
    if (frame.effect == SIM_SYNC_DROPS || frame.effect == SIM_SYNC_FAILS_DONE ||
        found.inode->sync_fails_next)
        result = -EIO;
    found.inode->sync_fails_next = frame.effect == SIM_SYNC_LATE;
    return (int)leave(&frame, result);
}

static int
sim_start_writeback(void *ctx, int fd, uint64_t offset, uint64_t length)
{
    struct descriptor found;
    struct frame frame;
    bool entered =
        enter_with_descriptor(&frame, &found, ctx, SIM_START_WRITEBACK, fd, offset, length);

    // A hint: what it makes durable early is what the policies that keep pending bytes show.
    return (int)leave(&frame, entered ? 0 : frame.call.result);
}

static int
sim_truncate(void *ctx, int fd, uint64_t size, enum tm_os_class file_class)
{
    struct sim *sim = ctx;
    struct descriptor found;
    struct frame frame;

    (void)file_class;
    if (!enter_with_descriptor(&frame, &found, ctx, SIM_TRUNCATE, fd, size, 0))
        return (int)leave(&frame, frame.call.result);
    absorb_regions(sim, found.inode);
    inode_set_size(found.inode, size);
    return (int)leave(&frame, 0);
}

static int
sim_allocate(void *ctx, int fd, uint64_t offset, uint64_t length)
{
    struct sim *sim = ctx;
    struct descriptor found;
    struct frame frame;
    uint64_t size;

    if (!enter_with_descriptor(&frame, &found, ctx, SIM_ALLOCATE, fd, offset, length))
        return (int)leave(&frame, frame.call.result);
    absorb_regions(sim, found.inode);
    size = found.inode->current.size;
    if (offset + length > size) {
        if (space_for(sim, offset + length - size) < offset + length - size)
            return (int)leave(&frame, -ENOSPC);
        inode_set_size(found.inode, offset + length);
    }
    return (int)leave(&frame, 0);
}

static int
sim_map(void *ctx, int fd, uint64_t offset, size_t length, void **address_out)
{
    struct sim *sim = ctx;
    struct descriptor found;
    struct region *region;
    struct frame frame;

    if (!enter_with_descriptor(&frame, &found, ctx, SIM_MAP, fd, offset, length))
        return (int)leave(&frame, frame.call.result);
    if (!found.writable || offset % PAGE_BYTES != 0 || length % PAGE_BYTES != 0 || length == 0)
        return (int)leave(&frame, -EINVAL);
    if (offset + length > found.inode->current.size)
        return (int)leave(&frame, -EFAULT); // populating beyond the end
    absorb_regions(sim, found.inode);
    region = need(calloc(1, sizeof *region));
    region->address = need(aligned_alloc(PAGE_BYTES, length));
    region->offset = offset;
    region->length = length;
    memcpy(region->address, found.inode->current.data + offset, length);
    region->next = found.inode->regions;
    found.inode->regions = region;
    sim->mapping_count++;
    *address_out = region->address;
    return (int)leave(&frame, 0);
}

static int
sim_unmap(void *ctx, void *address, size_t length)
{
    struct sim *sim = ctx;
    struct frame frame;

    if (!enter(&frame, ctx, SIM_UNMAP, TM_OS_CLASS_LOG, "(mapping)", 0, length))
        return (int)leave(&frame, frame.call.result);
    for (struct inode *inode = sim->inodes; inode != NULL; inode = inode->next) {
        for (struct region **link = &inode->regions; *link != NULL; link = &(*link)->next) {
            struct region *region = *link;

            if (region->address != address || region->length != length)
                continue;
            absorb_regions(sim, inode);
            *link = region->next;
            free(region->address);
            free(region);
            sim->mapping_count--;
            return (int)leave(&frame, 0);
        }
    }
    return (int)leave(&frame, -EINVAL);
}

/* Whether another descriptor than `fd` holds the lock on the inode. */
static bool
others_lock(struct sim *sim, int fd, const struct inode *inode, enum tm_os_lock lock)
{
    for (size_t i = 0; i < sim->descriptor_count; i++) {
        const struct descriptor *other = &sim->descriptors[i];

        if (other->open && other->inode == inode && DESCRIPTOR_FIRST + (int)i != fd &&
            (other->locks & 1u << lock) != 0)
            return true;
    }
    return false;
}

static int
sim_lock(void *ctx, int fd, enum tm_os_lock lock)
{
    struct sim *sim = ctx;
    struct descriptor found;
    struct frame frame;

    if (!enter_with_descriptor(&frame, &found, ctx, SIM_LOCK, fd, 0, 0))
        return (int)leave(&frame, frame.call.result);
    if (lock == TM_OS_LOCK_WRITER && !found.writable)
        return (int)leave(&frame, -EBADF);
    if (lock == TM_OS_LOCK_WRITER && others_lock(sim, fd, found.inode, lock))
        return (int)leave(&frame, -EAGAIN);
    sim->descriptors[fd - DESCRIPTOR_FIRST].locks |= 1u << lock;
    return (int)leave(&frame, 0);
}

static int
sim_is_locked(void *ctx, int fd, enum tm_os_lock lock)
{
    struct descriptor found;
    struct frame frame;

    if (!enter_with_descriptor(&frame, &found, ctx, SIM_IS_LOCKED, fd, 0, 0))
        return (int)leave(&frame, frame.call.result);
    return (int)leave(&frame, others_lock(ctx, fd, found.inode, lock));
}

static int
sim_unlock(void *ctx, int fd)
{
    struct sim *sim = ctx;
    struct descriptor found;
    struct frame frame;

    if (!enter_with_descriptor(&frame, &found, ctx, SIM_UNLOCK, fd, 0, 0))
        return (int)leave(&frame, frame.call.result);
    sim->descriptors[fd - DESCRIPTOR_FIRST].locks = 0;
    return (int)leave(&frame, 0);
}

static uint64_t
sim_fork_generation(void *ctx)
{
    struct sim *sim = ctx;

    return atomic_load_explicit(&sim->fork_generation, memory_order_relaxed);
}

/* ---- Life -------------------------------------------------------------------------------------------------- */

struct sim *
sim_create(uint64_t seed)
{
    struct sim *sim = need(calloc(1, sizeof *sim));

    pthread_mutex_init(&sim->mutex, NULL);
    sim->rng = rng_from(seed);
    sim->os = (struct tm_os){
        .ctx = sim,
        .open_dir = sim_open_dir,
        .make_dir = sim_make_dir,
        .remove_dir = sim_remove_dir,
        .sync_parent = sim_sync_parent,
        .sync_dir = sim_sync_dir,
        .list = sim_list,
        .open = sim_open,
        .close = sim_close,
        .stat = sim_stat,
        .pread = sim_pread,
        .pwrite = sim_pwrite,
        .sync = sim_sync,
        .start_writeback = sim_start_writeback,
        .truncate = sim_truncate,
        .allocate = sim_allocate,
        .map = sim_map,
        .unmap = sim_unmap,
        .rename = sim_rename,
        .link = sim_link,
        .remove = sim_remove,
        .lock = sim_lock,
        .is_locked = sim_is_locked,
        .unlock = sim_unlock,
        .fork_generation = sim_fork_generation,
    };
    return sim;
}

void
sim_destroy(struct sim *sim)
{
    if (sim == NULL)
        return;
    sim_fault_clear(sim);
    for (size_t i = 0; i < sim->descriptor_count; i++)
        free(sim->descriptors[i].name);
    free(sim->descriptors);
    while (sim->dirs != NULL) {
        struct dir *dir = sim->dirs;

        sim->dirs = dir->next;
        entries_free(&dir->entries);
        entries_free(&dir->durable_entries);
        dir_forget_edits(dir);
        free(dir->edits);
        free(dir->path);
        free(dir);
    }
    while (sim->inodes != NULL) {
        struct inode *inode = sim->inodes;

        sim->inodes = inode->next;
        inode_free(inode);
    }
    pthread_mutex_destroy(&sim->mutex);
    free(sim);
}

const struct tm_os *
sim_os(struct sim *sim)
{
    return &sim->os;
}

uint64_t
sim_call_count(const struct sim *sim)
{
    return atomic_load(&sim->call_count);
}

void
sim_stop_at(struct sim *sim, uint64_t call)
{
    atomic_store(&sim->stop_at, call);
}

bool
sim_stopped(const struct sim *sim)
{
    return atomic_load(&sim->stopped);
}

/* ---- Images of files ----------------------------------------------------------------------------------------- */

static void
apply_edits(const struct inode *inode, size_t count, struct bytes *image)
{
    for (size_t i = 0; i < count; i++)
        edit_apply(&inode->edits[i], image);
}

/* P2: some whole edits, and a part of the next. */
static void
image_prefix(const struct inode *inode, struct rng *rng, struct bytes *image)
{
    static const uint64_t cut_units[] = {1, 512, PAGE_BYTES};
    size_t whole = rng_below(rng, inode->edit_count + 1);
    uint64_t unit = cut_units[rng_below(rng, 3)];
    const struct byte_edit *torn;
    uint64_t end;

    apply_edits(inode, whole, image);
    if (whole == inode->edit_count || inode->edits[whole].is_size)
        return;
    torn = &inode->edits[whole];
    end = torn->offset + rng_below(rng, torn->data.size + 1);
    end -= end % unit; // media tear at sectors and pages of the file, not of the write
    if (end > torn->offset)
        bytes_write(image, torn->offset, torn->data.data, (size_t)(end - torn->offset));
}

enum page_fate { PAGE_KEPT, PAGE_FIRST_HALF, PAGE_SECOND_HALF, PAGE_ZEROS, PAGE_OLD, PAGE_GARBAGE };

/* One page of P3. Only pending bytes are touched (S2): `old` is the durable byte or 0. */
static void
image_page(struct bytes *image, const struct bytes *full, const uint8_t *pending, size_t start,
           enum page_fate fate, struct rng *rng)
{
    size_t end = start + PAGE_BYTES < image->size ? start + PAGE_BYTES : image->size;
    size_t middle = start + PAGE_BYTES / 2;

    for (size_t i = start; i < end; i++) {
        bool kept = fate == PAGE_KEPT || (fate == PAGE_FIRST_HALF && i < middle) ||
                    (fate == PAGE_SECOND_HALF && i >= middle);

        if (!pending[i])
            continue;
        if (kept)
            image->data[i] = i < full->size ? full->data[i] : 0;
        else if (fate == PAGE_ZEROS)
            image->data[i] = 0;
        else if (fate == PAGE_GARBAGE)
            image->data[i] = (uint8_t)rng_next(rng);
    }
}

/* P3 */
static void
image_pages(const struct inode *inode, struct rng *rng, struct bytes *image)
{
    size_t durable_size = image->size;
    struct bytes full = {0};
    uint8_t *pending;
    size_t size;
    size_t torn_page;

    bytes_assign(&full, image);
    apply_edits(inode, inode->edit_count, &full);
    size = full.size;
    bytes_resize(image, size);
    pending = need(calloc(size + 1, 1));
    for (size_t i = 0; i < inode->edit_count; i++) {
        const struct byte_edit *edit = &inode->edits[i];

        // What was cut off and has grown again is pending too, as zeros.
        if (edit->is_size && edit->offset < durable_size && edit->offset < size)
            memset(pending + edit->offset, 1, size - edit->offset);
        for (size_t at = 0; !edit->is_size && at < edit->data.size; at++) {
            if (edit->offset + at < size)
                pending[edit->offset + at] = 1;
        }
    }
    torn_page = rng_below(rng, size / PAGE_BYTES + 1);
    for (size_t page = 0; page * PAGE_BYTES < size; page++) {
        enum page_fate fate = rng_chance(rng, 1, 2)
                                  ? PAGE_KEPT
                                  : (enum page_fate)(PAGE_ZEROS + (int)rng_below(rng, 3));

        if (page == torn_page)
            fate = rng_chance(rng, 1, 2) ? PAGE_FIRST_HALF : PAGE_SECOND_HALF;
        image_page(image, &full, pending, page * PAGE_BYTES, fate, rng);
    }
    // The size is metadata with a fate of its own: usually the last one, else an older one.
    if (size > durable_size && rng_chance(rng, 1, 4)) {
        size_t kept = durable_size + rng_below(rng, size - durable_size + 1);

        bytes_resize(image, rng_chance(rng, 1, 2) ? durable_size : kept);
    }
    free(pending);
    bytes_free(&full);
}

/* P4 */
static void
image_sizes(const struct inode *inode, struct rng *rng, struct bytes *image)
{
    if (rng_chance(rng, 1, 3))
        return; // not even the size
    for (size_t i = 0; i < inode->edit_count; i++) {
        const struct byte_edit *edit = &inode->edits[i];

        if (edit->is_size)
            bytes_resize(image, edit->offset);
        else if (edit->offset + edit->data.size > image->size)
            bytes_resize(image, edit->offset + edit->data.size);
    }
}

static void
image_of_file(const struct inode *inode, enum sim_policy policy, struct rng *rng,
              struct bytes *image)
{
    bytes_assign(image, &inode->durable);
    switch (policy) {
    case SIM_P0_STRICT:
        break;
    case SIM_P1_ALL:
    case SIM_P5_DATA_FIRST:
    case SIM_P7_UNLINK_UNDONE:
        apply_edits(inode, inode->edit_count, image);
        break;
    case SIM_P2_PREFIX:
        image_prefix(inode, rng, image);
        break;
    case SIM_P3_PAGES:
        image_pages(inode, rng, image);
        break;
    case SIM_P4_METADATA_FIRST:
        image_sizes(inode, rng, image);
        break;
    case SIM_P6_RENAME_SPLIT:
        if (rng_chance(rng, 1, 2))
            apply_edits(inode, inode->edit_count, image);
        break;
    case SIM_POLICY_COUNT:
        assert(!"a policy");
    }
}

/* ---- Images of directories ----------------------------------------------------------------------------------- */

static void
split_rename(const struct entry_edit *edit, struct rng *rng, struct entries *image)
{
    if (rng_chance(rng, 1, 2)) { // both names
        entries_set(image, edit->name, edit->inode);
        entries_set(image, edit->name_to, edit->inode);
    } else { // neither; what the new name stood for before stays
        entries_unset(image, edit->name, edit->inode);
    }
}

static bool
entry_edit_survives(const struct entry_edit *edit, enum sim_policy policy, bool undo_all,
                    struct rng *rng)
{
    switch (policy) {
    case SIM_P0_STRICT:
    case SIM_P5_DATA_FIRST:
        return false;
    case SIM_P3_PAGES:
        return rng_chance(rng, 1, 2);
    case SIM_P7_UNLINK_UNDONE:
        return edit->kind != ENTRY_UNLINK || (!undo_all && rng_chance(rng, 1, 2));
    default:
        return true;
    }
}

static void
image_of_entries(const struct dir *dir, enum sim_policy policy, struct rng *rng,
                 struct entries *image)
{
    size_t count = dir->edit_count;
    bool undo_all = rng_chance(rng, 1, 2);

    entries_assign(image, &dir->durable_entries);
    if (policy == SIM_P2_PREFIX)
        count = rng_below(rng, count + 1);
    for (size_t i = 0; i < count; i++) {
        const struct entry_edit *edit = &dir->edits[i];

        if (policy == SIM_P6_RENAME_SPLIT && edit->kind == ENTRY_RENAME)
            split_rename(edit, rng, image);
        else if (entry_edit_survives(edit, policy, undo_all, rng))
            entry_edit_apply(edit, image);
    }
}

static bool
image_of_existence(const struct dir *dir, enum sim_policy policy, struct rng *rng)
{
    if (dir->exists == dir->exists_durably)
        return dir->exists;
    switch (policy) {
    case SIM_P0_STRICT:
    case SIM_P5_DATA_FIRST:
        return dir->exists_durably;
    case SIM_P2_PREFIX:
    case SIM_P3_PAGES:
        return rng_chance(rng, 1, 2);
    case SIM_P7_UNLINK_UNDONE:
        return true;
    default:
        return dir->exists;
    }
}

struct sim *
sim_crash(struct sim *sim, enum sim_policy policy, uint64_t seed)
{
    struct sim *after = sim_create(seed);
    struct rng rng = rng_from(seed);

    absorb_all_regions(sim);
    for (struct inode *inode = sim->inodes; inode != NULL; inode = inode->next)
        inode->image = NULL;
    for (struct dir *dir = sim->dirs; dir != NULL; dir = dir->next) {
        struct dir *copy;

        if (!image_of_existence(dir, policy, &rng))
            continue;
        copy = dir_create(after, dir->path);
        copy->exists_durably = true;
        image_of_entries(dir, policy, &rng, &copy->entries);
        for (size_t i = 0; i < copy->entries.count; i++) {
            struct entry *entry = &copy->entries.list[i];
            struct inode *inode = entry->inode;

            if (inode->image == NULL) {
                inode->image = inode_create(after, inode->file_class);
                image_of_file(inode, policy, &rng, &inode->image->durable);
                bytes_assign(&inode->image->current, &inode->image->durable);
            }
            entry->inode = inode->image;
        }
        dir_make_durable(copy);
    }
    return after;
}

static struct inode *
clone_inode(struct sim *to, struct inode *inode)
{
    struct inode *copy = inode_create(to, inode->file_class);

    bytes_assign(&copy->current, &inode->current);
    bytes_assign(&copy->durable, &inode->durable);
    copy->sync_fails_next = inode->sync_fails_next;
    for (size_t i = 0; i < inode->edit_count; i++) {
        struct byte_edit *edit =
            inode_add_edit(copy, inode->edits[i].is_size, inode->edits[i].offset);

        bytes_assign(&edit->data, &inode->edits[i].data);
    }
    inode->image = copy;
    return copy;
}

static void
clone_entries(struct entries *to, const struct entries *from)
{
    for (size_t i = 0; i < from->count; i++)
        entries_set(to, from->list[i].name, from->list[i].inode->image);
}

struct sim *
sim_clone(struct sim *sim)
{
    struct rng rng = sim->rng; // a copy: `sim` goes on as if nothing had been asked
    struct sim *after = sim_create(rng_next(&rng));

    absorb_all_regions(sim);
    for (struct inode *inode = sim->inodes; inode != NULL; inode = inode->next)
        clone_inode(after, inode);
    for (struct dir *dir = sim->dirs; dir != NULL; dir = dir->next) {
        struct dir *copy = dir_create(after, dir->path);

        copy->exists = dir->exists;
        copy->exists_durably = dir->exists_durably;
        clone_entries(&copy->durable_entries, &dir->durable_entries);
        clone_entries(&copy->entries, &dir->durable_entries);
        for (size_t i = 0; i < dir->edit_count; i++) {
            const struct entry_edit *edit = &dir->edits[i];

            dir_edit(copy, edit->kind, edit->name, edit->name_to, edit->inode->image);
        }
    }
    collect_garbage(after);
    return after;
}

const char *
sim_policy_name(enum sim_policy policy)
{
    static const char *const names[SIM_POLICY_COUNT] = {
        "P0 strict",         "P1 all",        "P2 prefix",       "P3 pages",
        "P4 metadata first", "P5 data first", "P6 rename split", "P7 unlink undone",
    };

    return (unsigned)policy < SIM_POLICY_COUNT ? names[policy] : "?";
}

/* ---- Faults --------------------------------------------------------------------------------------------------- */

size_t
sim_fault_add(struct sim *sim, struct sim_fault fault)
{
    struct fault_rule *rule = need(calloc(1, sizeof *rule));
    struct fault_rule **link = &sim->faults;

    rule->fault = fault;
    pthread_mutex_lock(&sim->mutex);
    while (*link != NULL)
        link = &(*link)->next;
    *link = rule;
    pthread_mutex_unlock(&sim->mutex);
    return sim->fault_count++;
}

static const struct fault_rule *
find_rule(const struct sim *sim, size_t fault)
{
    const struct fault_rule *rule = sim->faults;

    while (fault-- != 0 && rule != NULL)
        rule = rule->next;
    assert(rule != NULL);
    return rule;
}

uint64_t
sim_fault_fired(const struct sim *sim, size_t fault)
{
    return atomic_load(&find_rule(sim, fault)->fired);
}

uint64_t
sim_fault_matched(const struct sim *sim, size_t fault)
{
    return atomic_load(&find_rule(sim, fault)->matched);
}

size_t
sim_fault_count(const struct sim *sim)
{
    return sim->fault_count;
}

void
sim_fault_clear(struct sim *sim)
{
    pthread_mutex_lock(&sim->mutex);
    while (sim->faults != NULL) {
        struct fault_rule *rule = sim->faults;

        sim->faults = rule->next;
        free(rule);
    }
    sim->fault_count = 0;
    pthread_mutex_unlock(&sim->mutex);
}

void
sim_set_space(struct sim *sim, uint64_t bytes)
{
    atomic_store(&sim->space_bytes, bytes);
}

uint64_t
sim_space_used(struct sim *sim)
{
    return space_used(sim);
}

void
sim_fork(struct sim *sim)
{
    atomic_fetch_add(&sim->fork_generation, 1);
}

const char *
sim_op_name(enum sim_op op)
{
    static const char *const names[SIM_OP_COUNT] = {
        "any",      "open_dir", "make_dir",  "remove_dir",      "sync_parent",
        "sync_dir", "list",     "open",      "close",           "stat",
        "pread",    "pwrite",   "sync",      "start_writeback", "truncate",
        "allocate", "map",      "unmap",     "rename",          "link",
        "remove",   "lock",     "is_locked", "unlock",
    };

    return (unsigned)op < SIM_OP_COUNT ? names[op] : "?";
}

/* ---- Watching, and the medium ---------------------------------------------------------------------------------- */

void
sim_watch(struct sim *sim, void (*before)(void *arg),
          void (*after)(void *arg, const struct sim_call *call), void *arg)
{
    sim->before = before;
    sim->after = after;
    sim->watch_arg = arg;
}

size_t
sim_open_descriptors(const struct sim *sim)
{
    size_t count = 0;

    for (size_t i = 0; i < sim->descriptor_count; i++)
        count += sim->descriptors[i].open;
    return count;
}

size_t
sim_open_mappings(const struct sim *sim)
{
    return sim->mapping_count;
}

static struct entry *
find_file(struct sim *sim, const char *path, const char *name)
{
    struct dir *dir = dir_find_existing(sim, path);

    return dir != NULL ? entries_find(&dir->entries, name) : NULL;
}

uint8_t *
sim_file_get(struct sim *sim, const char *dir, const char *name, size_t *size_out)
{
    struct entry *entry = find_file(sim, dir, name);
    struct bytes *current;
    uint8_t *copy;

    *size_out = 0;
    if (entry == NULL)
        return NULL;
    absorb_regions(sim, entry->inode);
    current = &entry->inode->current;
    copy = need(malloc(current->size + 1));
    if (current->size != 0)
        memcpy(copy, current->data, current->size);
    *size_out = current->size;
    return copy;
}

void
sim_file_put(struct sim *sim, const char *path, const char *name, const void *data, size_t size)
{
    struct dir *dir = dir_find_existing(sim, path);
    struct entry *entry;
    struct inode *inode;

    assert(dir != NULL);
    entry = entries_find(&dir->entries, name);
    inode = entry != NULL ? entry->inode : inode_create(sim, TM_OS_CLASS_TABLE);
    inode_forget_edits(inode);
    inode->sync_fails_next = false;
    bytes_resize(&inode->current, 0);
    bytes_write(&inode->current, 0, data, size);
    bytes_assign(&inode->durable, &inode->current);
    entries_set(&dir->entries, name, inode);
    entries_set(&dir->durable_entries, name, inode);
}

bool
sim_file_remove(struct sim *sim, const char *path, const char *name)
{
    struct dir *dir = dir_find_existing(sim, path);
    struct entry *entry = find_file(sim, path, name);
    struct entry *durable;
    size_t kept = 0;

    if (entry == NULL)
        return false;
    for (size_t i = 0; i < dir->edit_count; i++) { // what is pending must not bring it back
        if (dir->edits[i].inode != entry->inode) {
            dir->edits[kept++] = dir->edits[i];
        } else {
            free(dir->edits[i].name);
            free(dir->edits[i].name_to);
        }
    }
    dir->edit_count = kept;
    durable = entries_find(&dir->durable_entries, name);
    if (durable != NULL)
        entries_unset(&dir->durable_entries, name, durable->inode);
    entries_unset(&dir->entries, name, entry->inode);
    return true;
}

void
sim_file_each(struct sim *sim, const char *path, void (*visit)(void *arg, const char *name),
              void *arg)
{
    struct dir *dir = dir_find_existing(sim, path);

    for (size_t i = 0; dir != NULL && i < dir->entries.count; i++)
        visit(arg, dir->entries.list[i].name);
}

void
sim_dir_put(struct sim *sim, const char *path)
{
    dir_create(sim, path)->exists_durably = true;
}

bool
sim_dir_exists(struct sim *sim, const char *path)
{
    return dir_find_existing(sim, path) != NULL;
}
