/* One side of the measurement: its device, its queue pairs, and how it waits. */
#ifndef SIDE_H
#define SIDE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_QPS 64
#define MAX_LIST 256
#define POLL 64
#define PORT 1

struct options {
	const char *device[2]; /* of the initiator, of the target */
	int gid_index[2];      /* -1: the RoCE v2 one of an IPv4 address */
	int cpu[2];            /* -1: any processor */
	int size, iters, tx_depth, rx_depth, list, qps, max_inline, timeout, seconds;
	bool lat, events;
};

/* What one side tells the other about a queue pair. */
struct address {
	uint32_t qpn, psn, rkey;
	uint64_t buffer;
	union ibv_gid gid;
};

struct channel {
	struct ibv_qp *qp;
	char *buffer;        /* of the elements that are written from, or into */
	struct ibv_mr *mr;
	struct address peer;
	uint32_t next;       /* element to write to */
	long left;           /* messages to send, or to receive, in this phase */
	int credits;         /* of the initiator: receives that are posted for it */
	int outstanding;     /* send requests posted and not completed */
	int consumed, owed;  /* of the target: receives to post again, credits to give */
};

struct side {
	const char *name;
	struct ibv_context *ctx;
	struct ibv_comp_channel *wake;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	unsigned int events; /* not acknowledged yet */
	struct channel ch[MAX_QPS];
	struct ibv_recv_wr recv[MAX_LIST]; /* a chain, of which any tail can be posted */
	struct ibv_wc wc[POLL];
};

extern struct options opt;
extern struct side self;

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *fmt, ...);

/* give_up is the handler of the signals that end a wait for ever. */
void give_up(int sig);

/* element is the distance between two messages in memory, in bytes. */
size_t element(void);

/* side_open opens the initiator's (0) or the target's (1) device and its queue
 * pairs, and connects them over sock to the other side. Every receive is posted
 * on both sides when it returns. */
void side_open(int which, int sock);

/* side_close waits until the other side is done as well, and frees everything. */
void side_close(int sock);

/* post_receives posts n receives of channel i. */
void post_receives(int i, int n);

/* completions returns how many there are in self.wc, all of them successes. If
 * it is to block, it sleeps until there are some. */
int completions(bool block);

#endif
