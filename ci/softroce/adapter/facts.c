#define _GNU_SOURCE
#include "adapter.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct facts facts;

static int answer(const char *value)
{
	static const struct {
		const char *name;
		int err;
	} known[] = {{"ok", 0}, {"EINVAL", EINVAL}, {"EIO", EIO}, {"EOPNOTSUPP", EOPNOTSUPP}};
	int sign = *value == '-' ? -1 : 1;

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (!strcmp(value + (sign < 0), known[i].name))
			return sign * known[i].err;
	}
	fail("%s is no answer", value);
}

/* Returns the index of value in the words, which end with NULL. */
static int one_of(const char *value, ...)
{
	va_list ap;
	const char *word;
	int i = 0;

	va_start(ap, value);
	while ((word = va_arg(ap, const char *))) {
		if (!strcmp(value, word)) {
			va_end(ap);
			return i;
		}
		i++;
	}
	va_end(ap);
	fail("the value %s is unknown", value);
}

static void transport(const char *value)
{
	static const struct {
		enum ibv_node_type node;
		enum ibv_transport_type transport;
	} known[] = {
		{IBV_NODE_CA, IBV_TRANSPORT_IB},
		{IBV_NODE_RNIC, IBV_TRANSPORT_IWARP},
		{IBV_NODE_UNSPECIFIED, IBV_TRANSPORT_UNSPECIFIED},
	};
	int i = one_of(value, "infiniband", "iwarp", "unspecified", NULL);

	facts.node = known[i].node;
	facts.transport = known[i].transport;
}

/* The facts that are answers. */
static const struct {
	const char *name;
	size_t at;
} answers[] = {
	{"rc", offsetof(struct facts, rc)},
	{"uc", offsetof(struct facts, uc)},
	{"alloc-mw", offsetof(struct facts, alloc_mw)},
	{"bind", offsetof(struct facts, bind)},
	{"invalidate", offsetof(struct facts, invalidate)},
	{"arm-solicited", offsetof(struct facts, arm_solicited)},
	{"query-qp", offsetof(struct facts, query_qp)},
	{"moderation", offsetof(struct facts, moderation)},
	{"write-imm", offsetof(struct facts, write_imm)},
	{"solicited-write", offsetof(struct facts, solicited_write)},
	{"post-in-error", offsetof(struct facts, post_in_error)},
};

static void set(const char *fact, const char *value)
{
	if (!strcmp(fact, "arm-solicited") && !strcmp(value, "any")) {
		facts.arms_any = true;
		return;
	}
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		if (!strcmp(fact, answers[i].name)) {
			*(int *)((char *)&facts + answers[i].at) = answer(value);
			return;
		}
	}
	if (!strcmp(fact, "driver"))
		snprintf(facts.driver, sizeof(facts.driver), "%s", value);
	else if (!strcmp(fact, "transport"))
		transport(value);
	else if (!strcmp(fact, "sge"))
		facts.sge = atoi(value);
	else if (!strcmp(fact, "inline"))
		facts.inlining = one_of(value, "refuses", "cuts", "takes", NULL);
	else if (!strcmp(fact, "inline-max"))
		facts.inline_max = strcmp(value, "none") ? (unsigned int)atoi(value) : UINT_MAX;
	else if (!strcmp(fact, "inline-data"))
		facts.late = one_of(value, "copied", "late", NULL);
	else if (!strcmp(fact, "windows"))
		facts.windows = (unsigned int[]){0, IBV_DEVICE_MEM_WINDOW_TYPE_2A,
			IBV_DEVICE_MEM_WINDOW_TYPE_2B}[one_of(value, "none", "2A", "2B", NULL)];
	else if (!strcmp(fact, "flush-wakes"))
		facts.flush_wakes = one_of(value, "no", "yes", NULL);
	else if (!strcmp(fact, "qp-events"))
		facts.qp_event = (int[]){-1, IBV_EVENT_QP_FATAL,
			IBV_EVENT_QP_ACCESS_ERR}[one_of(value, "none", "fatal", "access", NULL)];
	else if (strcmp(fact, "tried"))
		fail("the fact %s is unknown", fact);
}

void facts_read(const char *path, const char *family)
{
	FILE *f = fopen(path, "re");
	char *line = NULL, name[64], fact[64], value[64];
	size_t size = 0;
	int found = 0;

	if (!f)
		fail("%s: %m", path);
	while (getline(&line, &size, f) >= 0) {
		if (*line == '#' || sscanf(line, "%63s %63s %63s", name, fact, value) != 3 || strcmp(name, family))
			continue;
		set(fact, value);
		found++;
	}
	free(line);
	fclose(f);
	if (!found)
		fail("%s has no family %s", path, family);
}
