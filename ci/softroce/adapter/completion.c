#define _GNU_SOURCE
#include "adapter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * What the library adds to a completion queue is its context, which the programs that
 * it is for do not use.
 */
struct queue {
	int solicited; /* as last armed */
	bool flushed, other; /* the device has had such completions since then */
	struct ibv_wc *kept; /* completions that were taken from the device, in their order */
	int n;
};

static struct queue *queue_of(struct ibv_cq *cq) { return cq->cq_context; }

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *context, struct ibv_comp_channel *ch, int vector)
{
	struct ibv_cq *cq;
	struct queue *q;

	if (gone_refuses(ctx))
		return NULL;
	events_creates(ctx, true);
	cq = NEXT(ibv_create_cq)(ctx, cqe, context, ch, vector);
	events_creates(ctx, false);
	if (!active || !cq)
		return cq;
	q = calloc(1, sizeof(*q));
	if (context || !q)
		fail("a completion queue with a context, or no memory");
	q->kept = calloc(cq->cqe, sizeof(*q->kept));
	if (!q->kept)
		fail("no memory for %d completions", cq->cqe);
	cq->cq_context = q;
	return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct queue *q = active ? queue_of(cq) : NULL;
	struct ibv_context *ctx = cq->context;
	struct ibv_comp_channel *ch = cq->channel;
	int err = NEXT(ibv_destroy_cq)(cq);

	if (err)
		return gone_answer(ctx, err);
	if (q) {
		free(q->kept);
		free(q);
	}
	if (!gone(ctx))
		return 0;
	/* libibverbs counts the queue of a destruction that has failed. */
	if (ch) {
		pthread_mutex_lock(&ctx->mutex);
		ch->refcnt++;
		pthread_mutex_unlock(&ctx->mutex);
	}
	return EIO;
}

/*
 * Polls the device. Soft-RoCE of old kernels has a flag of its own for a key that the
 * peer has invalidated: the bit of a checksum, which it does not compute.
 */
static int poll_device(struct ibv_cq *cq, struct queue *q, int n, struct ibv_wc *wc)
{
	int got = real.poll_cq(cq, n, wc);

	for (int i = 0; i < got; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			pairs_completed(cq, &wc[i]);
		q->flushed |= wc[i].status == IBV_WC_WR_FLUSH_ERR;
		q->other |= wc[i].status != IBV_WC_WR_FLUSH_ERR;
		if (wc[i].status == IBV_WC_SUCCESS && wc[i].wc_flags & IBV_WC_IP_CSUM_OK) {
			wc[i].wc_flags &= ~(unsigned int)IBV_WC_IP_CSUM_OK;
			wc[i].wc_flags |= IBV_WC_WITH_INV;
		}
	}
	return got;
}

void queue_take(struct ibv_cq *cq)
{
	struct queue *q = queue_of(cq);
	int got = 0;

	if (q->n < cq->cqe)
		got = poll_device(cq, q, cq->cqe - q->n, q->kept + q->n);
	if (got > 0)
		q->n += got;
}

int adapter_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct queue *q = queue_of(cq);
	int done, got;

	if (gone(cq->context))
		return 0;
	pthread_mutex_lock(&mu);
	done = n < q->n ? n : q->n;
	memcpy(wc, q->kept, done * sizeof(*wc));
	memmove(q->kept, q->kept + done, (q->n - done) * sizeof(*wc));
	q->n -= done;
	got = done < n ? poll_device(cq, q, n - done, wc + done) : 0;
	pthread_mutex_unlock(&mu);
	return got < 0 && !done ? got : done + (got > 0 ? got : 0);
}

int adapter_arm(struct ibv_cq *cq, int solicited_only)
{
	struct queue *q = queue_of(cq);
	int err;

	if (solicited_only && facts.arm_solicited)
		return facts.arm_solicited;
	pthread_mutex_lock(&mu);
	q->solicited = solicited_only && !facts.arms_any;
	q->flushed = q->other = false;
	err = real.req_notify_cq(cq, q->solicited);
	pthread_mutex_unlock(&mu);
	return err;
}

/* Takes all completions of the device, and reports whether it has had those of a flush only. */
static bool only_flushed(struct ibv_cq *cq, struct queue *q)
{
	queue_take(cq);
	return q->flushed && !q->other;
}

/*
 * Some providers make the completions of a flush while somebody polls. The events that
 * Soft-RoCE raises for them are dropped, and the completions wait for the next poll.
 * Completion channels must not block.
 */
int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **context)
{
	struct queue *q;
	bool drop;

	if (NEXT(ibv_get_cq_event)(ch, cq, context))
		return -1;
	if (!active)
		return 0;
	*context = NULL;
	if (facts.flush_wakes)
		return 0;
	q = queue_of(*cq);
	pthread_mutex_lock(&mu);
	drop = only_flushed(*cq, q);
	if (drop) {
		/* The queue stays armed: what comes later raises its event. */
		real.req_notify_cq(*cq, q->solicited);
		drop = only_flushed(*cq, q);
	}
	pthread_mutex_unlock(&mu);
	if (!drop)
		return 0;
	NEXT(ibv_ack_cq_events)(*cq, 1);
	errno = EAGAIN;
	return -1;
}
