#define _GNU_SOURCE
#include "adapter.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool active;
pthread_mutex_t mu = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
struct ibv_context_ops real;
static int (*real_query_device_ex)(struct ibv_context *, const struct ibv_query_device_ex_input *,
				   struct ibv_device_attr_ex *, size_t);
static int (*real_query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *, size_t);

void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "adapter: ");
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	_exit(125);
}

void thread_start(void *(*fn)(void *))
{
	sigset_t all, old;
	pthread_t t;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&t, NULL, fn, NULL))
		fail("no thread");
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_detach(t);
}

void *next(const char *name)
{
	static const char *const versions[] = {"IBVERBS_1.1", "IBVERBS_1.8", "IBVERBS_1.0"};
	void *fn = NULL;

	for (size_t i = 0; !fn && i < sizeof(versions) / sizeof(versions[0]); i++)
		fn = dlvsym(RTLD_NEXT, name, versions[i]);
	if (!fn)
		fail("libibverbs has no %s", name);
	return fn;
}

static __attribute__((constructor)) void start(int argc, char **argv, char **envp)
{
	const char *family = getenv("SPLITNIC_ADAPTER"), *path = getenv("SPLITNIC_ADAPTER_FACTS");
	const char *absent = getenv("SPLITNIC_ADAPTER_GONE");

	(void)argc;
	if (!family)
		return;
	if (!path)
		fail("SPLITNIC_ADAPTER_FACTS is missing");
	facts_read(path, family);
	sysfs_dress(argv, envp);
	if (absent)
		gone_watch(absent);
	active = true;
}

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = NEXT(ibv_get_device_list)(n);

	int there = 0;

	if (!active || !list)
		return list;
	for (int i = 0; list[i]; i++) {
		list[i]->node_type = facts.node;
		list[i]->transport_type = facts.transport;
		if (!gone_named(list[i]->name))
			list[there++] = list[i];
	}
	list[there] = NULL;
	if (n)
		*n = there;
	return list;
}

static void limit(struct ibv_device_attr *a)
{
	a->device_cap_flags &= ~(unsigned int)(IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	a->device_cap_flags |= facts.windows;
	if (!facts.windows)
		a->max_mw = 0;
	if (a->max_sge > facts.sge)
		a->max_sge = facts.sge;
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	int err = NEXT(ibv_query_device)(ctx, attr);

	if (active && !err)
		limit(attr);
	return err;
}

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr, size_t size)
{
	return gone(ctx) ? EIO : real_query_port(ctx, port, attr, size);
}

static int query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *in,
			   struct ibv_device_attr_ex *attr, size_t size)
{
	int err = real_query_device_ex(ctx, in, attr, size);

	if (err)
		return err;
	limit(&attr->orig_attr);
	attr->cq_mod_caps.max_cq_count = facts.moderation ? 0 : UINT16_MAX;
	attr->cq_mod_caps.max_cq_period = facts.moderation ? 0 : UINT16_MAX;
	return 0;
}

/* Soft-RoCE has no moderation. Without it there are only more events. */
static int modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	(void)cq;
	(void)attr;
	return facts.moderation;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *ctx = NEXT(ibv_open_device)(device);
	struct verbs_context *v;

	if (!active || !ctx)
		return ctx;
	v = verbs_get_ctx(ctx);
	if (!v)
		fail("libibverbs has no extended contexts");
	real = ctx->ops;
	real_query_device_ex = v->query_device_ex;
	real_query_port = v->query_port;
	v->query_port = query_port;
	v->query_device_ex = query_device_ex;
	v->modify_cq = modify_cq;
	ctx->ops.alloc_mw = adapter_alloc_mw;
	ctx->ops.dealloc_mw = adapter_dealloc_mw;
	ctx->ops.post_send = adapter_post_send;
	ctx->ops.post_recv = adapter_post_recv;
	ctx->ops.poll_cq = adapter_poll;
	ctx->ops.req_notify_cq = adapter_arm;
	events_open(ctx);
	return ctx;
}
