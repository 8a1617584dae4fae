#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/*
 * Work requests are passed to the provider in chains on the C stack. A chain of
 * 64 requests takes 8 KiB, its scatter/gather elements 16 KiB. Longer chains gain
 * nothing: one doorbell for 64 requests is as good as one for more.
 */
#define CHUNK 64
#define PIECES 1024

_Static_assert(SNV_MAX_SGE <= PIECES, "the data of one request fits a chain");

/* A create_* verb returns NULL and sets errno; some providers forget errno. */
static int failed(void)
{
	return errno ? errno : EIO;
}

int snv_list(struct ibv_device ***list, int *n)
{
	errno = 0;
	*list = ibv_get_device_list(n);
	return *list ? 0 : failed();
}

int snv_open(const char *name, struct ibv_context **ctx)
{
	struct ibv_device **list;
	int n, err = snv_list(&list, &n);

	if (err)
		return err;
	err = ENODEV;
	for (int i = 0; i < n; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name))
			continue;
		errno = 0;
		*ctx = ibv_open_device(list[i]);
		err = *ctx ? 0 : failed();
		break;
	}
	ibv_free_device_list(list);
	return err;
}

int snv_nonblock(int fd)
{
	int fl = fcntl(fd, F_GETFL);

	if (fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) < 0)
		return errno;
	return 0;
}

int snv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, uint16_t *pkey)
{
	__be16 key;

	if (ibv_query_pkey(ctx, port, index, &key))
		return failed();
	*pkey = ntohs(key);
	return 0;
}

/* The event is acknowledged here, so destroying its object never waits. */
int snv_get_async(struct ibv_context *ctx, struct snv_event *out)
{
	struct ibv_async_event ev;

	errno = 0;
	if (ibv_get_async_event(ctx, &ev))
		return failed();
	out->type = ev.event_type;
	switch (ev.event_type) {
	case IBV_EVENT_CQ_ERR:
		out->element = ev.element.cq->handle;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		out->element = ev.element.qp->qp_num;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		out->element = ev.element.port_num;
		break;
	default:
		out->element = 0;
	}
	ibv_ack_async_event(&ev);
	return 0;
}

int snv_alloc_pd(struct ibv_context *ctx, struct ibv_pd **pd)
{
	errno = 0;
	*pd = ibv_alloc_pd(ctx);
	return *pd ? 0 : failed();
}

int snv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access, struct ibv_mr **mr)
{
	errno = 0;
	*mr = ibv_reg_mr(pd, addr, len, access);
	return *mr ? 0 : failed();
}

int snv_alloc_mw(struct ibv_pd *pd, struct ibv_mw **mw)
{
	errno = 0;
	*mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	return *mw ? 0 : failed();
}

int snv_create_channel(struct ibv_context *ctx, struct ibv_comp_channel **ch)
{
	int err;

	errno = 0;
	*ch = ibv_create_comp_channel(ctx);
	if (!*ch)
		return failed();
	err = snv_nonblock((*ch)->fd);
	if (err)
		ibv_destroy_comp_channel(*ch);
	return err;
}

int snv_create_cq(struct ibv_context *ctx, int cqe, struct ibv_comp_channel *ch, int vector, struct ibv_cq **cq)
{
	errno = 0;
	*cq = ibv_create_cq(ctx, cqe, NULL, ch, vector);
	return *cq ? 0 : failed();
}

static uint8_t wc_op(enum ibv_wc_opcode op)
{
	switch (op) {
	case IBV_WC_SEND:
		return SNV_OP_SEND;
	case IBV_WC_RDMA_WRITE:
		return SNV_OP_WRITE;
	case IBV_WC_RDMA_READ:
		return SNV_OP_READ;
	case IBV_WC_LOCAL_INV:
		return SNV_OP_LOCAL_INV;
	case IBV_WC_BIND_MW:
		return SNV_OP_BIND;
	case IBV_WC_RECV:
		return SNV_OP_RECV;
	case IBV_WC_RECV_RDMA_WITH_IMM:
		return SNV_OP_RECV_WRITE_IMM;
	default:
		return 0;
	}
}

/*
 * Returns the number of completions, or a negative errno. If wc_flags has any
 * bit of inv_flags, the peer invalidated a key.
 */
int snv_poll(snv_cq cq, struct snv_wc *out, int n, unsigned int inv_flags)
{
	struct ibv_wc wc[CHUNK];
	int done = 0;

	while (done < n) {
		int want = n - done < CHUNK ? n - done : CHUNK;
		int got = ibv_poll_cq((struct ibv_cq *)cq, want, wc);

		if (got < 0)
			return done ? done : -EIO;
		for (int i = 0; i < got; i++) {
			struct snv_wc *o = &out[done + i];

			*o = (struct snv_wc){
				.id = wc[i].wr_id,
				.status = wc[i].status,
				.vendor_err = wc[i].vendor_err,
				.qpn = wc[i].qp_num,
			};
			if (wc[i].status != IBV_WC_SUCCESS)
				continue;
			o->op = wc_op(wc[i].opcode);
			o->len = wc[i].byte_len;
			if (wc[i].wc_flags & IBV_WC_WITH_IMM) {
				o->imm = ntohl(wc[i].imm_data);
				o->flags |= SNV_WITH_IMM;
			}
			if (wc[i].wc_flags & inv_flags) {
				o->inv_key = wc[i].invalidated_rkey;
				o->flags |= SNV_WITH_INV;
			}
		}
		done += got;
		if (got < want)
			break;
	}
	return done;
}

int snv_moderate(struct ibv_cq *cq, uint16_t count, uint16_t period)
{
	struct ibv_modify_cq_attr a = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = {.cq_count = count, .cq_period = period},
	};

	return ibv_modify_cq(cq, &a);
}

int snv_arm(snv_cq cq, int solicited_only)
{
	return ibv_req_notify_cq((struct ibv_cq *)cq, solicited_only);
}

/* The event is acknowledged here, so ibv_destroy_cq never waits for it. */
int snv_get_cq_event(struct ibv_comp_channel *ch)
{
	struct ibv_cq *cq;
	void *cq_context;

	errno = 0;
	if (ibv_get_cq_event(ch, &cq, &cq_context))
		return failed();
	ibv_ack_cq_events(cq, 1);
	return 0;
}

int snv_create_qp(struct ibv_pd *pd, struct snv_qp_params *p, struct ibv_qp **qp)
{
	struct ibv_qp_init_attr a = {
		.send_cq = p->send_cq,
		.recv_cq = p->recv_cq,
		.qp_type = p->type,
		.cap = {
			.max_send_wr = p->max_send_wr,
			.max_recv_wr = p->max_recv_wr,
			.max_send_sge = p->max_sge,
			.max_recv_sge = 1,
			.max_inline_data = p->max_inline,
		},
	};

	errno = 0;
	*qp = ibv_create_qp(pd, &a);
	if (!*qp)
		return failed();
	p->max_inline = a.cap.max_inline_data;
	return 0;
}

int snv_modify_qp(struct ibv_qp *qp, const struct snv_qp_attr *a)
{
	struct ibv_qp_attr m = {
		.qp_state = a->state,
		.path_mtu = a->path_mtu,
		.rq_psn = a->rq_psn,
		.sq_psn = a->sq_psn,
		.dest_qp_num = a->dest_qpn,
		.qp_access_flags = a->access,
		.pkey_index = a->pkey_index,
		.max_rd_atomic = a->max_rd_atomic,
		.max_dest_rd_atomic = a->max_dest_rd_atomic,
		.min_rnr_timer = a->min_rnr_timer,
		.port_num = a->port,
		.timeout = a->timeout,
		.retry_cnt = a->retry_cnt,
		.rnr_retry = a->rnr_retry,
		.ah_attr = {
			.dlid = a->dlid,
			.sl = a->sl,
			.is_global = a->is_global,
			.port_num = a->port,
			.grh = {
				.sgid_index = a->sgid_index,
				.hop_limit = a->hop_limit,
				.traffic_class = a->traffic_class,
			},
		},
	};

	memcpy(m.ah_attr.grh.dgid.raw, a->dgid, sizeof(a->dgid));
	return ibv_modify_qp(qp, &m, a->attr_mask);
}

int snv_query_qp_state(struct ibv_qp *qp, int *state)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr ia;
	int err = ibv_query_qp(qp, &a, IBV_QP_STATE, &ia);

	if (!err)
		*state = a.qp_state;
	return err;
}

#define SHIFTED (SNV_SIGNALED | SNV_SOLICITED | SNV_INLINE)

_Static_assert(IBV_SEND_SIGNALED == SNV_SIGNALED << 1 && IBV_SEND_SOLICITED == SNV_SOLICITED << 1 &&
	       IBV_SEND_INLINE == SNV_INLINE << 1, "send_flags can shift");

static unsigned int send_flags(int flags)
{
	return (unsigned int)(flags & SHIFTED) << 1 | (flags & SNV_FENCE ? IBV_SEND_FENCE : 0);
}

/* Fills w, except its list, and links it to w + 1. Returns false if the opcode cannot be posted here. */
static int fill_send(struct ibv_send_wr *w, const struct snv_send_wr *r, struct snv_send_limits lim)
{
	w->wr_id = r->id;
	w->next = w + 1;
	w->send_flags = send_flags(r->flags);
	switch (r->op) {
	case SNV_OP_SEND:
		w->opcode = IBV_WR_SEND;
		break;
	case SNV_OP_SEND_INV:
		w->opcode = IBV_WR_SEND_WITH_INV;
		w->invalidate_rkey = r->rkey;
		break;
	case SNV_OP_SEND_IMM:
		w->opcode = IBV_WR_SEND_WITH_IMM;
		w->imm_data = htonl(r->imm);
		break;
	case SNV_OP_WRITE_IMM:
		w->imm_data = htonl(r->imm);
		/* fall through */
	case SNV_OP_WRITE:
		w->opcode = r->op == SNV_OP_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM;
		w->wr.rdma.remote_addr = r->remote_addr;
		w->wr.rdma.rkey = r->rkey;
		break;
	case SNV_OP_READ:
		if (!lim.rd || r->flags & (SNV_MORE | SNV_INLINE))
			return 0;
		w->opcode = IBV_WR_RDMA_READ;
		w->wr.rdma.remote_addr = r->remote_addr;
		w->wr.rdma.rkey = r->rkey;
		break;
	default:
		return 0;
	}
	return 1;
}

/*
 * Fills sge with the data of the first request of r[0..n), and sets *used to the
 * number of elements. Empty pieces are left out, because some devices take a
 * length of 0 as 2 GiB. Returns the number of records of the request, or 0 if
 * the request is invalid.
 */
static int gather(struct ibv_sge *sge, uint32_t *used, const struct snv_send_wr *r, int n, struct snv_send_limits lim)
{
	uint64_t size = 0;
	uint32_t k = 0;
	int i = 0;

	if (!(r->flags & SNV_MORE)) {
		*sge = (struct ibv_sge){.addr = r->addr, .length = r->len, .lkey = r->lkey};
		*used = r->len != 0;
		return !(r->flags & SNV_INLINE) || r->len <= lim.inl;
	}
	do {
		if (i == n || (uint32_t)i == lim.sge)
			return 0;
		sge[k] = (struct ibv_sge){.addr = r[i].addr, .length = r[i].len, .lkey = r[i].lkey};
		k += r[i].len != 0;
		size += r[i].len;
	} while (r[i++].flags & SNV_MORE);
	if (size > (r->flags & SNV_INLINE ? lim.inl : UINT32_MAX))
		return 0;
	*used = k;
	return i;
}

/* Returns the number of records of the first n requests. */
static int records(const struct snv_send_wr *r, int n)
{
	int i = 0;

	while (n > 0)
		n -= !(r[i++].flags & SNV_MORE);
	return i;
}

/*
 * Returns how many requests of a chain of n were posted, from the results err and
 * bad of ibv_post_send or ibv_post_recv. A provider that fails without setting
 * bad has posted none.
 */
static int taken(const void *first, const void *bad, size_t size, int n, int err)
{
	if (!err)
		return n;
	if (!bad)
		return 0;
	return (int)(((const char *)bad - (const char *)first) / size);
}

struct snv_posted snv_post_send(snv_qp qp, const struct snv_send_wr *wr, int n, struct snv_send_limits lim)
{
	struct ibv_send_wr w[CHUNK], *bad;
	struct ibv_sge sge[PIECES];
	struct snv_posted p = {0, 0};
	int stop = 0;

	while (p.n < n && !stop) {
		uint32_t pieces = 0;
		int k = 0, rec = p.n;

		/* Continue while the largest request would fit. */
		while (k < CHUNK && pieces + lim.sge <= PIECES && rec < n) {
			const struct snv_send_wr *r = &wr[rec];
			uint32_t used;
			int got;

			if (!fill_send(&w[k], r, lim)) {
				stop = r->op == SNV_OP_LOCAL_INV && !(r->flags & SNV_MORE) ? SNV_LOCAL_INV : EINVAL;
				break;
			}
			got = gather(&sge[pieces], &used, r, n - rec, lim);
			if (!got) {
				stop = EINVAL;
				break;
			}
			w[k].sg_list = &sge[pieces];
			w[k].num_sge = used;
			pieces += used;
			rec += got;
			k++;
		}
		if (!k)
			break;
		w[k - 1].next = NULL;
		bad = NULL;
		p.err = ibv_post_send((struct ibv_qp *)qp, w, &bad);
		if (p.err) {
			p.n += records(&wr[p.n], taken(w, bad, sizeof(w[0]), k, p.err));
			return p;
		}
		p.n = rec;
	}
	p.err = stop;
	return p;
}

struct snv_posted snv_post_recv(snv_qp qp, const struct snv_recv_wr *wr, int n)
{
	struct ibv_recv_wr w[CHUNK], *bad;
	struct ibv_sge sge[CHUNK];
	struct snv_posted p = {0, 0};

	while (p.n < n) {
		int k = n - p.n < CHUNK ? n - p.n : CHUNK;

		for (int i = 0; i < k; i++) {
			const struct snv_recv_wr *r = &wr[p.n + i];

			w[i] = (struct ibv_recv_wr){
				.wr_id = r->id,
				.next = i + 1 < k ? &w[i + 1] : NULL,
				.sg_list = &sge[i],
				.num_sge = r->len ? 1 : 0,
			};
			sge[i] = (struct ibv_sge){.addr = r->addr, .length = r->len, .lkey = r->lkey};
		}
		bad = NULL;
		p.err = ibv_post_recv((struct ibv_qp *)qp, w, &bad);
		p.n += taken(w, bad, sizeof(w[0]), k, p.err);
		if (p.err)
			break;
	}
	return p;
}

/* Returns a bind with the next key of the window. */
static struct ibv_send_wr bind_wr(const struct snv_bind *b)
{
	return (struct ibv_send_wr){
		.wr_id = b->id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = send_flags(b->flags),
		.bind_mw = {
			.mw = b->mw,
			.rkey = ibv_inc_rkey(b->mw->rkey),
			.bind_info = {
				.mr = b->mr,
				.addr = b->addr,
				.length = b->len,
				.mw_access_flags = b->access,
			},
		},
	};
}

/*
 * Posts a list that begins with a bind. b.mw->rkey is the new key afterwards if the
 * bind was posted, and otherwise the old one: some providers change it before they
 * reject the bind.
 */
static int post_bind(snv_qp qp, const struct snv_bind *b, struct ibv_send_wr *w)
{
	uint32_t old = b->mw->rkey;
	struct ibv_send_wr *bad = NULL;
	int err = ibv_post_send((struct ibv_qp *)qp, w, &bad);

	b->mw->rkey = !err || bad == w + 1 ? w->bind_mw.rkey : old;
	return err;
}

int snv_post_bind(snv_qp qp, struct snv_bind b)
{
	struct ibv_send_wr w = bind_wr(&b);

	return post_bind(qp, &b, &w);
}

/*
 * Posts a bind and a SEND of its key in one chain. If only the SEND is rejected,
 * the window is bound nevertheless, and b.mw->rkey is the new key.
 */
int snv_post_bind_send(snv_qp qp, struct snv_bind b, uint64_t send, int flags)
{
	struct ibv_send_wr w[2] = {bind_wr(&b)};

	w[0].next = &w[1];
	w[1].wr_id = send;
	w[1].opcode = IBV_WR_SEND_WITH_IMM;
	w[1].send_flags = send_flags(flags);
	w[1].imm_data = htonl(w[0].bind_mw.rkey);
	return post_bind(qp, &b, w);
}

int snv_post_local_inv(snv_qp qp, uint32_t rkey, uint64_t id, int flags)
{
	struct ibv_send_wr w = {
		.wr_id = id,
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = send_flags(flags),
		.invalidate_rkey = rkey,
	}, *bad = NULL;

	return ibv_post_send((struct ibv_qp *)qp, &w, &bad);
}
