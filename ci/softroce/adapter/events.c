#define _GNU_SOURCE
#include "adapter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * The asynchronous events of a device are those of the kernel, and those that the
 * library raises. The program sees a descriptor that is readable for both.
 */

/* An event of the library. It is in the list until the program has acknowledged it. */
struct raised {
	struct raised *next;
	struct ibv_async_event ev;
	bool taken;
};

struct opened {
	struct opened *next;
	struct ibv_context *ctx;
	int async; /* the true descriptor */
	int event; /* the eventfd that counts the library's events that are not taken */
	int both; /* the epoll of both, which the program sees */
	int creating; /* calls under way that need the true descriptor */
	bool gone;
	struct raised *events;
};

/* These guard the list, and what is in it. No other lock is taken below. */
static pthread_mutex_t events_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acknowledged = PTHREAD_COND_INITIALIZER;
static struct opened *devices;

/* Returns an open device. events_mu is held. */
static struct opened *find(const struct ibv_context *ctx)
{
	struct opened *o = devices;

	while (o && o->ctx != ctx)
		o = o->next;
	return o;
}

/* Raises an event. events_mu is held. */
static void raise_event(struct opened *o, enum ibv_event_type type, struct ibv_qp *qp)
{
	struct raised *r = calloc(1, sizeof(*r)), **at = &o->events;
	uint64_t one = 1;

	if (!r)
		fail("no memory for an event");
	r->ev.event_type = type;
	r->ev.element.qp = qp;
	while (*at)
		at = &(*at)->next;
	*at = r;
	if (write(o->event, &one, sizeof(one)) != sizeof(one))
		fail("an event: %m");
}

void events_open(struct ibv_context *ctx)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct opened *o = calloc(1, sizeof(*o));

	if (!o)
		fail("no memory for a device");
	o->ctx = ctx;
	o->async = ctx->async_fd;
	o->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	o->both = epoll_create1(EPOLL_CLOEXEC);
	if (fcntl(o->async, F_SETFL, O_NONBLOCK) || epoll_ctl(o->both, EPOLL_CTL_ADD, o->async, &ev) ||
	    epoll_ctl(o->both, EPOLL_CTL_ADD, o->event, &ev))
		fail("asynchronous events: %m");
	ctx->async_fd = o->both;
	pthread_mutex_lock(&events_mu);
	o->next = devices;
	devices = o;
	pthread_mutex_unlock(&events_mu);
}

void events_creates(struct ibv_context *ctx, bool begins)
{
	struct opened *o;

	pthread_mutex_lock(&events_mu);
	o = find(ctx);
	if (o) {
		o->creating += begins ? 1 : -1;
		ctx->async_fd = o->creating ? o->async : o->both;
	}
	pthread_mutex_unlock(&events_mu);
}

void events_raise(struct ibv_qp *qp, enum ibv_event_type type)
{
	struct opened *o;

	pthread_mutex_lock(&events_mu);
	o = find(qp->context);
	if (o)
		raise_event(o, type, qp);
	pthread_mutex_unlock(&events_mu);
}

void events_gone(void)
{
	pthread_mutex_lock(&events_mu);
	for (struct opened *o = devices; o; o = o->next) {
		if (o->gone || !gone_named(o->ctx->device->name))
			continue;
		o->gone = true;
		raise_event(o, IBV_EVENT_DEVICE_FATAL, NULL);
	}
	pthread_mutex_unlock(&events_mu);
}

bool events_is_gone(const struct ibv_context *ctx)
{
	struct opened *o;
	bool is;

	pthread_mutex_lock(&events_mu);
	o = find(ctx);
	is = o && o->gone;
	pthread_mutex_unlock(&events_mu);
	return is;
}

/* Forgets an event. events_mu is held. */
static void drop(struct raised **at)
{
	struct raised *r = *at;

	*at = r->next;
	free(r);
}

/*
 * As the kernel does when a queue pair is destroyed: events of it that nobody has taken
 * are dropped, and those that somebody has taken are waited for.
 */
void events_forget(const struct ibv_qp *qp)
{
	struct opened *o;

	pthread_mutex_lock(&events_mu);
	o = find(qp->context);
	for (struct raised **at = &o->events; *at;) {
		uint64_t n;

		if ((*at)->ev.element.qp != qp) {
			at = &(*at)->next;
		} else if ((*at)->taken) {
			pthread_cond_wait(&acknowledged, &events_mu);
			at = &o->events;
		} else {
			if (read(o->event, &n, sizeof(n)) != sizeof(n))
				fail("an event: %m");
			drop(at);
		}
	}
	pthread_mutex_unlock(&events_mu);
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	struct raised *r;
	struct opened *o;
	uint64_t n;
	int err = 0;

	pthread_mutex_lock(&events_mu);
	o = find(ctx);
	if (!o) {
		pthread_mutex_unlock(&events_mu);
		return NEXT(ibv_get_async_event)(ctx, ev);
	}
	r = o->events;
	while (r && r->taken)
		r = r->next;
	if (r && read(o->event, &n, sizeof(n)) == sizeof(n)) {
		r->taken = true;
		*ev = r->ev;
	} else if (o->gone) {
		errno = EIO;
		err = -1;
	} else {
		ctx->async_fd = o->async;
		err = NEXT(ibv_get_async_event)(ctx, ev);
		ctx->async_fd = o->creating ? o->async : o->both;
	}
	pthread_mutex_unlock(&events_mu);
	return err;
}

void ibv_ack_async_event(struct ibv_async_event *ev)
{
	bool own = false;

	pthread_mutex_lock(&events_mu);
	for (struct opened *o = devices; o && !own; o = o->next) {
		for (struct raised **at = &o->events; *at && !own; at = &(*at)->next) {
			struct raised *r = *at;

			own = r->taken && r->ev.event_type == ev->event_type && r->ev.element.qp == ev->element.qp;
			if (own) {
				drop(at);
				break;
			}
		}
	}
	pthread_cond_broadcast(&acknowledged);
	pthread_mutex_unlock(&events_mu);
	if (!own)
		NEXT(ibv_ack_async_event)(ev);
}

int ibv_close_device(struct ibv_context *ctx)
{
	pthread_mutex_lock(&events_mu);
	for (struct opened **at = &devices; *at; at = &(*at)->next) {
		struct opened *o = *at;

		if (o->ctx != ctx)
			continue;
		*at = o->next;
		ctx->async_fd = o->async;
		close(o->both);
		close(o->event);
		while (o->events)
			drop(&o->events);
		free(o);
		break;
	}
	pthread_mutex_unlock(&events_mu);
	return NEXT(ibv_close_device)(ctx);
}
