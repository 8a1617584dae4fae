#define _GNU_SOURCE
#include "adapter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#undef ibv_reg_mr

/*
 * While a file with the name of a device exists in a directory, there is no such device:
 * what is open learns it by an asynchronous event, and the kernel answers all calls with
 * EIO, as after an unplug or a reset. The queues stay mapped: posts go nowhere, and
 * nothing completes.
 *
 * The kernel frees the objects of a true device when it goes. Here a call that destroys
 * an object frees it, and fails nevertheless: what a program does not give up is left in
 * the kernel, where a test can count it. After that call the object does not exist.
 */

static const char *watched;

bool gone(const struct ibv_context *ctx) { return watched && events_is_gone(ctx); }

bool gone_named(const char *name)
{
	char path[PATH_MAX];

	if (!watched)
		return false;
	if (snprintf(path, sizeof(path), "%s/%s", watched, name) >= (int)sizeof(path))
		fail("%s/%s is too long", watched, name);
	return access(path, F_OK) == 0;
}

static void *watch(void *arg)
{
	for (;; usleep(LOOK_US)) {
		events_gone();
		pairs_fail();
	}
	return arg;
}

void gone_watch(const char *dir)
{
	watched = dir;
	thread_start(watch);
}

int gone_answer(const struct ibv_context *ctx, int err) { return gone(ctx) ? EIO : err; }

bool gone_refuses(const struct ibv_context *ctx)
{
	if (!gone(ctx))
		return false;
	errno = EIO;
	return true;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	return gone_refuses(ctx) ? NULL : NEXT(ibv_alloc_pd)(ctx);
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	const struct ibv_context *ctx = pd->context;

	return gone_answer(ctx, NEXT(ibv_dealloc_pd)(pd));
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return gone_refuses(pd->context) ? NULL : NEXT(ibv_reg_mr)(pd, addr, length, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return gone_refuses(pd->context) ? NULL : NEXT(ibv_reg_mr_iova2)(pd, addr, length, iova, access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	const struct ibv_context *ctx = mr->context;

	return gone_answer(ctx, NEXT(ibv_dereg_mr)(mr));
}

struct ibv_mw *adapter_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	if (facts.alloc_mw) {
		errno = abs(facts.alloc_mw);
		return NULL;
	}
	return gone_refuses(pd->context) ? NULL : real.alloc_mw(pd, type);
}

int adapter_dealloc_mw(struct ibv_mw *mw)
{
	const struct ibv_context *ctx = mw->context;

	return gone_answer(ctx, real.dealloc_mw(mw));
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	return gone_refuses(ctx) ? NULL : NEXT(ibv_create_comp_channel)(ctx);
}
