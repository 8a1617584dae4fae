#define _GNU_SOURCE
#include "adapter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * While a file exists, there is no device: what is open learns it by an asynchronous
 * event, and the kernel answers all calls with EIO, as after an unplug or a reset. The
 * queues stay mapped: posts go nowhere, and nothing completes.
 */

#define LOOK_US 10000

/* A device that is open while the file is watched. */
struct opened {
	struct opened *next;
	struct ibv_context *ctx;
	int async; /* the true descriptor of asynchronous events */
	int event; /* the eventfd that is raised when the device goes away */
	int both; /* the epoll of both, which the program sees */
	int creating; /* calls under way that need the true descriptor */
	bool gone;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER; /* guards the list, and what is gone */
static struct opened *devices;
static const char *watched;
static bool absent;

/* Returns an open device. mu is held. */
static struct opened *find(const struct ibv_context *ctx)
{
	struct opened *o = devices;

	while (o && o->ctx != ctx)
		o = o->next;
	return o;
}

bool gone(const struct ibv_context *ctx)
{
	struct opened *o;
	bool is;

	if (!watched)
		return false;
	pthread_mutex_lock(&mu);
	o = find(ctx);
	is = o && o->gone;
	pthread_mutex_unlock(&mu);
	return is;
}

void gone_creates(struct ibv_context *ctx, bool begins)
{
	struct opened *o;

	if (!watched)
		return;
	pthread_mutex_lock(&mu);
	o = find(ctx);
	if (o) {
		o->creating += begins ? 1 : -1;
		ctx->async_fd = o->creating ? o->async : o->both;
	}
	pthread_mutex_unlock(&mu);
}

bool gone_all(void) { return absent; }

static void *watch(void *arg)
{
	for (;;) {
		bool now = access(watched, F_OK) == 0;
		uint64_t one = 1;

		pthread_mutex_lock(&mu);
		for (struct opened *o = devices; o && now; o = o->next) {
			if (o->gone)
				continue;
			o->gone = true;
			if (write(o->event, &one, sizeof(one)) != sizeof(one))
				fail("an event: %m");
		}
		absent = now;
		pthread_mutex_unlock(&mu);
		if (now)
			pairs_fail();
		usleep(LOOK_US);
	}
	return arg;
}

void gone_watch(const char *path)
{
	watched = path;
	thread_start(watch);
}

void gone_open(struct ibv_context *ctx)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct opened *o;

	if (!watched)
		return;
	o = calloc(1, sizeof(*o));
	if (!o)
		fail("no memory for a device");
	o->ctx = ctx;
	o->async = ctx->async_fd;
	o->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	o->both = epoll_create1(EPOLL_CLOEXEC);
	if (fcntl(o->async, F_SETFL, O_NONBLOCK) || epoll_ctl(o->both, EPOLL_CTL_ADD, o->async, &ev) ||
	    epoll_ctl(o->both, EPOLL_CTL_ADD, o->event, &ev))
		fail("asynchronous events: %m");
	ctx->async_fd = o->both;
	pthread_mutex_lock(&mu);
	o->next = devices;
	devices = o;
	pthread_mutex_unlock(&mu);
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	struct opened *o;
	uint64_t n;
	int r = -1;

	pthread_mutex_lock(&mu);
	o = find(ctx);
	if (!o) {
		pthread_mutex_unlock(&mu);
		return NEXT(ibv_get_async_event)(ctx, ev);
	}
	if (read(o->event, &n, sizeof(n)) == sizeof(n)) {
		memset(ev, 0, sizeof(*ev));
		ev->event_type = IBV_EVENT_DEVICE_FATAL;
		r = 0;
	} else if (o->gone) {
		errno = EIO;
	} else {
		ctx->async_fd = o->async;
		r = NEXT(ibv_get_async_event)(ctx, ev);
		ctx->async_fd = o->creating ? o->async : o->both;
	}
	pthread_mutex_unlock(&mu);
	return r;
}

int ibv_close_device(struct ibv_context *ctx)
{
	struct opened *o;

	pthread_mutex_lock(&mu);
	o = find(ctx);
	if (o) {
		struct opened **at = &devices;

		while (*at != o)
			at = &(*at)->next;
		*at = o->next;
		ctx->async_fd = o->async;
		close(o->both);
		close(o->event);
		free(o);
	}
	pthread_mutex_unlock(&mu);
	return NEXT(ibv_close_device)(ctx);
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	if (gone(ctx)) {
		errno = EIO;
		return NULL;
	}
	return NEXT(ibv_alloc_pd)(ctx);
}
