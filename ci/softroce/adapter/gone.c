#define _GNU_SOURCE
#include "adapter.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/*
 * While a file with the name of a device exists in a directory, there is no such device:
 * what is open learns it by an asynchronous event, and the kernel answers all calls with
 * EIO, as after an unplug or a reset. The queues stay mapped: posts go nowhere, and
 * nothing completes.
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

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	if (gone(ctx)) {
		errno = EIO;
		return NULL;
	}
	return NEXT(ibv_alloc_pd)(ctx);
}
