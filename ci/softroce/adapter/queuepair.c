#define _GNU_SOURCE
#include "adapter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The timer of Soft-RoCE may expire without need: 1 s is longer than usual on adapters. */
#define LEAST_TIMEOUT 18

/* Time between the post of a request and the device's reading of its memory. */
#define LATE_US 1000

/* A request that the device has not read yet, with its list. */
struct late {
	struct late *next;
	struct ibv_send_wr wr;
	struct ibv_sge sge[];
};

/* What the library adds to a queue pair is its context, as with completion queues. */
struct pair {
	struct pair *next;
	struct ibv_qp *qp;
	unsigned int inlined; /* bytes that were granted */
	bool error; /* the program knows that the pair is in the error state */
	bool over; /* the pair has failed, and no event will be raised */
	struct late *first, **end;
};

static struct pair *pairs;

static struct pair *pair_of(struct ibv_qp *qp) { return qp->qp_context; }

/* Posts the late requests of a pair. mu is held. */
static void read_now(struct pair *p)
{
	struct ibv_send_wr *bad;

	for (struct late *l; (l = p->first);) {
		if (real.post_send(p->qp, &l->wr, &bad) == ENOMEM)
			return; /* the queue is full for now */
		p->first = l->next;
		free(l);
	}
	p->end = &p->first;
}

static void *read_late(void *arg)
{
	for (;;) {
		usleep(LATE_US);
		pthread_mutex_lock(&mu);
		for (struct pair *p = pairs; p; p = p->next)
			read_now(p);
		pthread_mutex_unlock(&mu);
	}
	return arg;
}

/* Moves a pair of a device that has disappeared to the error state. mu is held. */
static void pair_fail(struct pair *p)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};

	if (!p->over)
		p->over = NEXT(ibv_modify_qp)(p->qp, &err, IBV_QP_STATE) == 0;
}

void pairs_fail(void)
{
	pthread_mutex_lock(&mu);
	for (struct pair *p = pairs; p; p = p->next) {
		if (gone(p->qp->context))
			pair_fail(p);
	}
	pthread_mutex_unlock(&mu);
}

/*
 * Raises an event if a pair has failed and no completion says why: the request that has
 * failed is one of the peer's. mu is held.
 */
static void look(struct pair *p)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	if (p->over || gone(p->qp->context) || NEXT(ibv_query_qp)(p->qp, &attr, IBV_QP_STATE, &init) ||
	    attr.qp_state != IBV_QPS_ERR)
		return;
	queue_take(p->qp->send_cq); /* a request completes before the state changes */
	if (!p->over)
		events_raise(p->qp, facts.qp_event);
	p->over = true;
}

void pairs_completed(struct ibv_cq *cq, struct ibv_wc *wc)
{
	struct pair *p = pairs;

	while (p && (p->qp->qp_num != wc->qp_num || p->qp->context != cq->context))
		p = p->next;
	if (!p)
		return;
	if (cq == p->qp->send_cq) {
		p->over |= wc->status != IBV_WC_WR_FLUSH_ERR;
		return;
	}
	if (facts.qp_event >= 0)
		look(p);
	/* Soft-RoCE of old kernels has a receive fail with the peer's request. */
	if (wc->status == IBV_WC_REM_ACCESS_ERR)
		wc->status = IBV_WC_WR_FLUSH_ERR;
}

static void *look_at_all(void *arg)
{
	for (;; usleep(LOOK_US)) {
		pthread_mutex_lock(&mu);
		for (struct pair *p = pairs; p; p = p->next)
			look(p);
		pthread_mutex_unlock(&mu);
	}
	return arg;
}

static void threads_start(void)
{
	if (facts.late)
		thread_start(read_late);
	if (facts.qp_event >= 0)
		thread_start(look_at_all);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct ibv_qp_init_attr a = *attr;
	unsigned int granted = a.cap.max_inline_data;
	struct ibv_qp *qp;
	struct pair *p;
	int err;

	if (!active)
		return NEXT(ibv_create_qp)(pd, attr);
	if (gone_refuses(pd->context))
		return NULL;
	err = attr->qp_type == IBV_QPT_RC ? facts.rc : facts.uc;
	if (a.cap.max_send_sge > (unsigned int)facts.sge || a.cap.max_recv_sge > (unsigned int)facts.sge)
		err = EINVAL;
	if (granted > facts.inline_max) {
		if (facts.inlining == REFUSES)
			err = EINVAL;
		granted = facts.inline_max;
	}
	if (err) {
		errno = abs(err);
		return NULL;
	}
	a.cap.max_inline_data = facts.late ? 0 : granted;
	events_creates(pd->context, true);
	qp = NEXT(ibv_create_qp)(pd, &a);
	events_creates(pd->context, false);
	if (!qp)
		return NULL;
	attr->cap.max_inline_data = granted;
	p = calloc(1, sizeof(*p));
	if (attr->qp_context || !p)
		fail("a queue pair with a context, or no memory");
	p->qp = qp;
	p->inlined = granted;
	p->end = &p->first;
	qp->qp_context = p;
	pthread_once(&once, threads_start);
	pthread_mutex_lock(&mu);
	p->next = pairs;
	pairs = p;
	pthread_mutex_unlock(&mu);
	return qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct ibv_context *ctx = qp->context;
	struct pair *p;
	int err;

	if (!active)
		return NEXT(ibv_destroy_qp)(qp);
	p = pair_of(qp);
	pthread_mutex_lock(&mu);
	if (gone(ctx))
		pair_fail(p); /* the program could not */
	p->over = true;
	events_forget(qp);
	err = NEXT(ibv_destroy_qp)(qp);
	if (!err) {
		for (struct pair **at = &pairs; *at; at = &(*at)->next) {
			if (*at == p) {
				*at = p->next;
				break;
			}
		}
		for (struct late *l; (l = p->first);) {
			p->first = l->next;
			free(l);
		}
		free(p);
	}
	pthread_mutex_unlock(&mu);
	return gone_answer(ctx, err);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr a = *attr;

	if (active && mask & IBV_QP_TIMEOUT && a.timeout < LEAST_TIMEOUT)
		a.timeout = LEAST_TIMEOUT;
	if (gone(qp->context))
		return EIO;
	if (active) {
		pthread_mutex_lock(&mu);
		read_now(pair_of(qp));
		if (mask & IBV_QP_STATE)
			pair_of(qp)->over = pair_of(qp)->error = a.qp_state == IBV_QPS_ERR;
		pthread_mutex_unlock(&mu);
	}
	return NEXT(ibv_modify_qp)(qp, &a, mask);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	int err;

	if (active && facts.query_qp)
		return facts.query_qp;
	if (gone(qp->context))
		return EIO;
	err = NEXT(ibv_query_qp)(qp, attr, mask, init);
	if (active && !err && mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR)
		pair_of(qp)->error = true;
	return err;
}

/* Returns the provider's answer to one request. */
static int refused(const struct pair *p, const struct ibv_send_wr *wr)
{
	size_t bytes = 0;

	switch (wr->opcode) {
	case IBV_WR_BIND_MW:
		return facts.bind;
	case IBV_WR_LOCAL_INV:
		return facts.invalidate;
	case IBV_WR_RDMA_WRITE:
		if (wr->send_flags & IBV_SEND_SOLICITED && facts.solicited_write)
			return facts.solicited_write;
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		if (facts.write_imm)
			return facts.write_imm;
		break;
	default:
		break;
	}
	if (wr->num_sge > facts.sge)
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		bytes += wr->sg_list[i].length;
	return wr->send_flags & IBV_SEND_INLINE && bytes > p->inlined ? EINVAL : 0;
}

/*
 * Has the device read the memory of requests later, if one has inline data, in their
 * order and behind those that it has not read yet.
 */
static int post_late(struct pair *p, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	bool inlined = false;
	int err = 0;

	for (struct ibv_send_wr *w = wr; w; w = w->next)
		inlined |= (w->send_flags & IBV_SEND_INLINE) != 0;
	pthread_mutex_lock(&mu);
	if (!inlined && !p->first) {
		err = real.post_send(p->qp, wr, bad);
		wr = NULL;
	}
	for (; wr; wr = wr->next) {
		struct late *l = malloc(sizeof(*l) + wr->num_sge * sizeof(struct ibv_sge));

		if (!l)
			fail("no memory for a request");
		l->next = NULL;
		l->wr = *wr;
		l->wr.next = NULL;
		l->wr.send_flags &= ~(unsigned int)IBV_SEND_INLINE;
		l->wr.sg_list = l->sge;
		memcpy(l->sge, wr->sg_list, wr->num_sge * sizeof(struct ibv_sge));
		*p->end = l;
		p->end = &l->next;
	}
	pthread_mutex_unlock(&mu);
	return err;
}

int adapter_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct ibv_send_wr *w, *last = NULL;
	struct pair *p = pair_of(qp);
	int err = 0, rest = 0;

	if (gone(qp->context))
		return 0;
	if (pair_of(qp)->error && facts.post_in_error) {
		*bad = wr;
		return facts.post_in_error;
	}
	for (w = wr; w; last = w, w = w->next) {
		rest = refused(p, w);
		if (rest)
			break;
	}
	/* The requests before the refused one are posted. */
	if (last) {
		last->next = NULL;
		err = facts.late ? post_late(p, wr, bad) : real.post_send(qp, wr, bad);
		last->next = w;
	}
	if (!err && rest)
		*bad = w;
	return err ? err : rest;
}

int adapter_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	if (gone(qp->context))
		return 0;
	if (pair_of(qp)->error && facts.post_in_error) {
		*bad = wr;
		return facts.post_in_error;
	}
	return real.post_recv(qp, wr, bad);
}
