/* SPDX-License-Identifier: MIT */
#include "plan/work.h"

#include "base/bits.h"
#include "plan/side.h"

typedef const struct pccl__shape *shape_ref;
typedef struct pccl__work work;

static uint32_t floor_log2(uint32_t size) { return 31 - (uint32_t)__builtin_clz(size); }
static bool is_power(uint32_t size) { return (size & (size - 1)) == 0; }
static double others(shape_ref shape) { return shape->size - 1.0; }
/* All parts but one, as a multiple of all. */
static double rest(shape_ref shape) { return others(shape) / shape->size; }

/* ---------------------------------------------------------------- rings */

work pccl__work_ring_all_reduce(shape_ref shape) {
    return (work){2.0 * others(shape), 2.0 * rest(shape), 2.0 * others(shape)};
}
work pccl__work_ring(shape_ref shape) { return (work){others(shape), rest(shape), others(shape)}; }
work pccl__work_ring_barrier(shape_ref shape) {
    double rounds = shape->size / 2;
    return (work){rounds, 0, shape->size > 2 ? 2 * rounds : rounds};
}
work pccl__work_chain(shape_ref shape) {
    double sends = shape->size > 1;
    return (work){others(shape), sends, sends};
}
work pccl__work_chain_exscan(shape_ref shape) {
    double sends = shape->size > 2 ? 2.0 : others(shape);
    return (work){others(shape), sends, sends};
}
work pccl__work_line_scan(shape_ref shape) { return (work){others(shape), others(shape), others(shape)}; }

/* Over a link with f positions behind it go n - f parts to each of those. */
work pccl__work_line_all_to_all(shape_ref shape) {
    double most = 0, size = shape->size;
    for (uint32_t p = 0; p < shape->size; p++) {
        double left = p, right = size - 1 - p, sent = left * (size - left) + right * (size - right);
        if (sent > most) most = sent;
    }
    return (work){others(shape), most / size, most};
}

/* ---------------------------------------------------------------- powers of two */

work pccl__work_doubling(shape_ref shape) {
    double exchanges = floor_log2(shape->size), folded = !is_power(shape->size);
    return (work){exchanges + 2 * folded, exchanges + folded, exchanges + folded};
}
work pccl__work_doubling_exscan(shape_ref shape) {
    double rounds = shape->size > 1 ? 1.0 + log2_ceil(shape->size - 1) : 0.0;
    return (work){rounds, rounds, rounds};
}
work pccl__work_binomial(shape_ref shape) {
    double rounds = log2_ceil(shape->size);
    return (work){rounds, rounds, rounds};
}
work pccl__work_halving_all_reduce(shape_ref shape) {
    double power = 1u << floor_log2(shape->size), folded = !is_power(shape->size);
    return (work){2.0 * floor_log2(shape->size) + 2 * folded, 2.0 * (power - 1) / power + folded,
                  2.0 * (power - 1) + folded * power};
}
work pccl__work_halving_reduce_scatter(shape_ref shape) {
    double sent = is_power(shape->size) ? others(shape) : shape->size;
    return (work){pccl__work_doubling(shape).rounds, sent / shape->size, sent};
}
work pccl__work_bruck_all_to_all(shape_ref shape) {
    double bits = 0;
    for (uint32_t far = 1; far < shape->size; far++) bits += __builtin_popcount(far);
    return (work){log2_ceil(shape->size), bits / shape->size, bits};
}
work pccl__work_bruck_all_gather(shape_ref shape) { return (work){log2_ceil(shape->size), rest(shape), others(shape)}; }
work pccl__work_dissemination(shape_ref shape) {
    double rounds = log2_ceil(shape->size);
    return (work){rounds, 0, rounds};
}

/* ---------------------------------------------------------------- straight */

work pccl__work_direct_all_reduce(shape_ref shape) {
    return (work){2.0 * (shape->size > 1), 2.0 * rest(shape), 2.0 * others(shape)};
}

work pccl__work_direct_reduce_scatter(shape_ref shape) { return (work){shape->size > 1, rest(shape), others(shape)}; }

work pccl__work_star(shape_ref shape) { return (work){shape->size > 1, others(shape), others(shape)}; }
work pccl__work_star_all_reduce(shape_ref shape) {
    return (work){2.0 * (shape->size > 1), others(shape), others(shape)};
}
work pccl__work_star_parts(shape_ref shape) { return (work){shape->size > 1, rest(shape), others(shape)}; }

/* ---------------------------------------------------------------- trees */

work pccl__work_tree_all_reduce(shape_ref shape) { return (work){2.0 * shape->below[0], shape->degree, 0}; }
work pccl__work_tree_barrier(shape_ref shape) { return (work){2.0 * shape->below[0], 0, 0}; }
work pccl__work_tree(shape_ref shape) { return (work){shape->diameter, shape->degree, 0}; }
work pccl__work_tree_parts(shape_ref shape) { return (work){shape->diameter, rest(shape), 0}; }
work pccl__work_tree_scan(shape_ref shape) { return (work){shape->diameter, others(shape), 0}; }
work pccl__work_tree_all_gather(shape_ref shape) { return (work){shape->diameter, shape->degree - rest(shape), 0}; }
work pccl__work_tree_all_to_all(shape_ref shape) {
    double most = 0, size = shape->size;
    for (uint32_t p = 0; p < shape->size; p++) {
        double sent = 0, behind;
        for (struct pccl__side side = {.peer = p}; pccl__side_next(shape, p, &side); sent += behind * (size - behind))
            behind = pccl__side_size(shape, &side);
        if (sent / size > most) most = sent / size;
    }
    return (work){shape->diameter, most, 0};
}

/* ---------------------------------------------------------------- by host */

static uint32_t members_of(shape_ref shape, uint32_t host) {
    return pccl__shape_host_begin(shape, host + 1) - pccl__shape_host_begin(shape, host);
}

/* What the leaders of one slice do among themselves, as a multiple of what they move. */
static work among(shape_ref shape, pccl__plan_work *flat) {
    const struct pccl__shape hosts = {.kind = PCCL_SHAPE_FULL, .size = pccl__shape_hosts(shape)};
    return flat(&hosts);
}

/* Parts of the largest slice. */
static double slice_parts(shape_ref shape, uint32_t slices) {
    double parts = 0;
    for (uint32_t host = 0; host < pccl__shape_hosts(shape); host++)
        parts += (double)div_ceil(members_of(shape, host), slices);
    return parts;
}

work pccl__work_hierarchical_all_reduce(shape_ref shape) { return among(shape, pccl__work_ring_all_reduce); }
work pccl__work_leaders_all_reduce(shape_ref shape) { return among(shape, pccl__work_doubling); }
work pccl__work_hierarchical_chain(shape_ref shape) { return among(shape, pccl__work_chain); }
work pccl__work_leaders_binomial(shape_ref shape) { return among(shape, pccl__work_binomial); }
work pccl__work_leaders_barrier(shape_ref shape) { return among(shape, pccl__work_dissemination); }

work pccl__work_hierarchical_parts(shape_ref shape) {
    work between = among(shape, pccl__work_ring);
    between.volume = ((double)shape->size - shape->host_least) / shape->size;
    between.transfers = slice_parts(shape, shape->host_least) - 1;
    return between;
}

work pccl__work_leaders_reduce_scatter(shape_ref shape) {
    work between = among(shape, pccl__work_halving_reduce_scatter);
    between.transfers = is_power(pccl__shape_hosts(shape)) ? (double)shape->size - shape->host_least : shape->size;
    between.volume = between.transfers / shape->size;
    return between;
}

/* In each round as many blocks as are missing, from its own onwards. */
work pccl__work_leaders_all_gather(shape_ref shape) {
    uint32_t hosts = pccl__shape_hosts(shape);
    work between = among(shape, pccl__work_bruck_all_gather);
    between.transfers = 0;
    for (uint32_t host = 0; host < hosts; host++) {
        double sent = 0;
        for (uint32_t have = 1; have < hosts; have *= 2)
            for (uint32_t i = 0; i < have && i < hosts - have; i++) sent += members_of(shape, (host + i) % hosts);
        if (sent > between.transfers) between.transfers = sent;
    }
    between.volume = between.transfers / shape->size;
    return between;
}

/* Inside a host all rounds are between the leaders and the others. `slices` lead, each for `chunks` chunks. */
static work inside_vector(shape_ref shape, uint32_t slices, double chunks) {
    double moved = 2.0 * (shape->host_most - 1.0);
    return (work){shape->host_most > 1 ? 2 : 0, moved / slices, moved * chunks};
}

static work inside_rooted(shape_ref shape, uint32_t slices) {
    double moved = shape->host_most - 1.0 + slices - 1.0;
    return (work){(shape->host_most > 1) + (slices > 1), moved / slices, moved};
}

/* A slice from each other member, and to some their parts. */
static work inside_scatter(shape_ref shape, uint32_t slices) {
    double parts =
        (shape->host_most - 1.0) * slice_parts(shape, slices) + (double)div_ceil(shape->host_most, slices) - 1;
    return (work){(shape->host_most > 1) + (shape->host_most > slices), parts / shape->size, parts};
}

/* From some their parts, and to each other member a slice: those not again. */
static work inside_gather(shape_ref shape, uint32_t slices) {
    double parts = (shape->host_most - 1.0) * slice_parts(shape, slices);
    return (work){(shape->host_most > 1) + (shape->host_most > slices), parts / shape->size, parts};
}

work pccl__inside_hierarchical_all_reduce(shape_ref shape) {
    return inside_vector(shape, shape->host_least, pccl__shape_hosts(shape));
}
work pccl__inside_leaders_all_reduce(shape_ref shape) { return inside_vector(shape, 1, 1); }
work pccl__inside_hierarchical_rooted(shape_ref shape) { return inside_rooted(shape, shape->host_least); }
work pccl__inside_leaders_rooted(shape_ref shape) { return inside_rooted(shape, 1); }
work pccl__inside_hierarchical_scatter(shape_ref shape) { return inside_scatter(shape, shape->host_least); }
work pccl__inside_leaders_scatter(shape_ref shape) { return inside_scatter(shape, 1); }
work pccl__inside_hierarchical_gather(shape_ref shape) { return inside_gather(shape, shape->host_least); }
work pccl__inside_leaders_gather(shape_ref shape) { return inside_gather(shape, 1); }
work pccl__inside_leaders_barrier(shape_ref shape) {
    work inside = inside_vector(shape, 1, 1);
    inside.volume = 0;
    return inside;
}
