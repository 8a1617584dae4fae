/*
 * The functions that package verbs calls. Every function returns the errno of
 * its own call (0 on success): a goroutine could move to another thread before
 * it reads errno. No function keeps a pointer to Go memory.
 */
#ifndef SPLITNIC_VERBS_SHIM_H
#define SPLITNIC_VERBS_SHIM_H

#include <stdint.h>
#include <infiniband/verbs.h>

/* The records of package fabric. Sizes and offsets are asserted in Go. */

struct snv_send_wr {
	uint64_t id;
	uint64_t addr;
	uint64_t remote_addr;
	uint32_t len;
	uint32_t lkey;
	uint32_t rkey;
	uint32_t imm;
	uint8_t op;
	uint8_t flags;
	uint8_t pad[6];
};

struct snv_recv_wr {
	uint64_t id;
	uint64_t addr;
	uint32_t len;
	uint32_t lkey;
};

struct snv_wc {
	uint64_t id;
	uint32_t status;
	uint32_t vendor_err;
	uint32_t qpn;
	uint32_t len;
	uint32_t imm;
	uint32_t inv_key;
	uint8_t op;
	uint8_t flags;
	uint8_t pad[6];
};

/* Values of fabric.Opcode, fabric.Flags and fabric.CompletionFlags. */
enum {
	SNV_OP_SEND = 1,
	SNV_OP_SEND_INV,
	SNV_OP_WRITE,
	SNV_OP_WRITE_IMM,
	SNV_OP_LOCAL_INV,
	SNV_OP_BIND,
	SNV_OP_READ,
	SNV_OP_SEND_IMM,
	SNV_OP_RECV = 128,
	SNV_OP_RECV_WRITE_IMM,

	SNV_SIGNALED = 1,
	SNV_SOLICITED = 2,
	SNV_INLINE = 4,
	SNV_FENCE = 8,
	SNV_MORE = 16,

	SNV_WITH_IMM = 1,
	SNV_WITH_INV = 2,
};

/* Limits of a queue pair for one send request. */
struct snv_send_limits {
	uint32_t sge; /* records; 1 to SNV_MAX_SGE */
	uint32_t inl; /* bytes of inline data */
	uint32_t rd;  /* not 0: reads are allowed */
};

#define SNV_MAX_SGE 256

/*
 * The queues of the data path are passed as numbers. For a pointer to a struct
 * that contains pointers, cgo would check on every call that it does not lead to
 * the Go heap. This check is a fifth of the cost of the call.
 */
typedef uintptr_t snv_qp; /* struct ibv_qp * */
typedef uintptr_t snv_cq; /* struct ibv_cq * */

/* The number of records of a batch that were posted, and why not all of them. */
struct snv_posted {
	int32_t n;
	int32_t err; /* errno, or SNV_LOCAL_INV: record n is a LOCAL_INV */
};

/* No errno, positive or negative: those are up to 4095. */
#define SNV_LOCAL_INV 0x10000

struct snv_port_attr {
	uint32_t state, max_mtu, active_mtu, gid_tbl_len, pkey_tbl_len, max_msg_sz, lid, sm_lid;
	uint32_t active_width, active_speed, phys_state, link_layer, grh_required;
};

struct snv_qp_params {
	struct ibv_cq *send_cq, *recv_cq;
	uint32_t type, max_send_wr, max_recv_wr, max_sge, max_inline;
};

/* Only the fields that attr_mask selects are used. */
struct snv_qp_attr {
	uint32_t attr_mask, state, path_mtu, dest_qpn, rq_psn, sq_psn, access;
	uint16_t pkey_index, dlid;
	uint8_t port, is_global, sgid_index, hop_limit, traffic_class, sl;
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer, max_rd_atomic, max_dest_rd_atomic;
	uint8_t dgid[16];
};

struct snv_event {
	uint32_t type;
	uint32_t element; /* port, QP number, or handle of a CQ, by type */
};

int snv_list(struct ibv_device ***list, int *n);
/* A bind of a memory window; see fabric.BindWR. */
struct snv_bind {
	struct ibv_mw *mw;
	struct ibv_mr *mr;
	uint64_t addr, len, id;
	int access; /* IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ */
	int flags;
};

int snv_open(const char *name, struct ibv_context **ctx);
int snv_nonblock(int fd);
int snv_query_port(struct ibv_context *ctx, uint8_t port, struct snv_port_attr *out);
int snv_query_moderation(struct ibv_context *ctx, uint16_t *count, uint16_t *period); /* maxima; period in µs */
int snv_query_gids(struct ibv_context *ctx, struct ibv_gid_entry *out, int max, int *n);
int snv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, uint16_t *pkey); /* in host byte order */
int snv_get_async(struct ibv_context *ctx, struct snv_event *out);

int snv_alloc_pd(struct ibv_context *ctx, struct ibv_pd **pd);
int snv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access, struct ibv_mr **mr);
int snv_alloc_mw(struct ibv_pd *pd, struct ibv_mw **mw);

int snv_create_channel(struct ibv_context *ctx, struct ibv_comp_channel **ch);
int snv_create_cq(struct ibv_context *ctx, int cqe, struct ibv_comp_channel *ch, int vector, struct ibv_cq **cq);
int snv_poll(snv_cq cq, struct snv_wc *out, int n, unsigned int inv_flags);
int snv_moderate(struct ibv_cq *cq, uint16_t count, uint16_t period); /* µs */
int snv_arm(snv_cq cq, int solicited_only);
int snv_get_cq_event(struct ibv_comp_channel *ch);

int snv_create_qp(struct ibv_pd *pd, struct snv_qp_params *p, struct ibv_qp **qp); /* p->max_inline: asked, granted */
int snv_modify_qp(struct ibv_qp *qp, const struct snv_qp_attr *a);
int snv_query_qp_state(struct ibv_qp *qp, int *state);

struct snv_posted snv_post_send(snv_qp qp, const struct snv_send_wr *wr, int n, struct snv_send_limits lim);
struct snv_posted snv_post_recv(snv_qp qp, const struct snv_recv_wr *wr, int n);
int snv_post_bind(snv_qp qp, struct snv_bind b);
int snv_post_bind_send(snv_qp qp, struct snv_bind b, uint64_t send, int flags);
int snv_post_local_inv(snv_qp qp, uint32_t rkey, uint64_t id, int flags);

#endif
