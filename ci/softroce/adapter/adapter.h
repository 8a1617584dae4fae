/*
 * A library to preload into a program that uses libibverbs. It has Soft-RoCE behave
 * like a family of adapters; see README.md.
 */
#ifndef ADAPTER_H
#define ADAPTER_H

/* Only functions of libibverbs are visible to the program. */
#pragma GCC visibility push(default)
#include <infiniband/verbs.h>
#pragma GCC visibility pop

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>

/* An answer is what a provider returns: 0, an errno, or a negative errno. */
struct facts {
	char driver[64];
	enum ibv_node_type node;
	enum ibv_transport_type transport;
	int rc, uc;
	int sge;
	enum { REFUSES, CUTS, TAKES } inlining;
	unsigned int inline_max; /* UINT_MAX: no limit */
	bool late;
	unsigned int windows; /* device_cap_flags */
	int alloc_mw, bind, invalidate;
	int arm_solicited;
	bool arms_any;
	int query_qp, moderation;
	int write_imm, solicited_write;
	int post_in_error;
	bool flush_wakes;
	int qp_event; /* -1: none */
};

extern struct facts facts;
extern bool active; /* whether the program is to see an adapter at all */

/* Guards completion queues and queue pairs. It is recursive. */
extern pthread_mutex_t mu;

/* The interval at which threads of the library look for something. */
#define LOOK_US 10000

/* The operations of the real provider. */
extern struct ibv_context_ops real;

/* Fills facts from the file of facts; ends the process if it cannot. */
void facts_read(const char *path, const char *family);

/*
 * Shows facts.driver in sysfs to this process and those that it starts. It executes the
 * program again, if it has not done so yet.
 */
void sysfs_dress(char **argv, char **envp);

/* Ends the process with a message. */
void fail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Starts a thread of the library, which gets none of the program's signals. */
void thread_start(void *(*fn)(void *));

/*
 * Returns the own function of libibverbs of this name. One that is called without this
 * is that of an old version, with other structures.
 */
void *next(const char *name);
#define NEXT(fn) ((__typeof__(&fn))next(#fn))

/* Has a device disappear while the file with its name exists in dir. */
void gone_watch(const char *dir);

/* Reports whether a device has disappeared since it was opened; and whether there is none now. */
bool gone(const struct ibv_context *ctx);
bool gone_named(const char *name);

/* Reports whether the kernel refuses to create an object of a device, with errno. */
bool gone_refuses(const struct ibv_context *ctx);

/* The kernel's answer to a call that has destroyed an object of a device. */
int gone_answer(const struct ibv_context *ctx, int err);

/* The asynchronous events of a device. */
void events_open(struct ibv_context *ctx);
void events_raise(struct ibv_qp *qp, enum ibv_event_type type);
void events_forget(const struct ibv_qp *qp);

/* Raises the events of devices that have disappeared. */
void events_gone(void);
bool events_is_gone(const struct ibv_context *ctx);

/* Around calls that pass the descriptor of asynchronous events to the kernel. */
void events_creates(struct ibv_context *ctx, bool begins);

/* Ends the connections of devices that have disappeared. */
void pairs_fail(void);

/* Takes note of a failed completion, and changes it to what an adapter would say. mu is held. */
void pairs_completed(struct ibv_cq *cq, struct ibv_wc *wc);

/* Takes the completions of a queue from the device, for a later poll. mu is held. */
void queue_take(struct ibv_cq *cq);

/* The operations that a context gets. */
int adapter_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int adapter_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int adapter_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int adapter_arm(struct ibv_cq *cq, int solicited_only);
struct ibv_mw *adapter_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int adapter_dealloc_mw(struct ibv_mw *mw);

#endif
