#include "guest/exits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/acct.h>
#include <linux/filter.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* Of one message: header, family's header, then attributes. */
#define REPLY_MAX 2048u
#define GENL_PAYLOAD (NLMSG_HDRLEN + GENL_HDRLEN)
#define PID_ATTR (GENL_PAYLOAD + NLA_HDRLEN) /* in AGGR_PID: first PID, then STATS */
#define PID_AT (PID_ATTR + NLA_HDRLEN)
#define STATS_ATTR (PID_AT + sizeof(uint32_t))
#define FIRST_VERSION_WITH_AGROUP 12

union request {
    struct nlmsghdr h;
    char space[256];
};

/* One command with one string attribute. */
static int request(int fd, uint16_t family, uint8_t command, uint16_t attr, const char *text,
                   struct err *err)
{
    union request r = { 0 };
    size_t len = strlen(text) + 1;
    struct genlmsghdr g = { .cmd = command, .version = 1 };
    struct nlattr a = { .nla_type = attr, .nla_len = (uint16_t)(NLA_HDRLEN + len) };
    if (GENL_PAYLOAD + NLA_HDRLEN + len > sizeof r) {
        return err_set(err, ERR_TOO_LARGE, "netlink: request");
    }
    r.h.nlmsg_type = family;
    r.h.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    r.h.nlmsg_len = (uint32_t)(GENL_PAYLOAD + NLA_ALIGN(NLA_HDRLEN + len));
    memcpy(r.space + NLMSG_HDRLEN, &g, sizeof g);
    memcpy(r.space + GENL_PAYLOAD, &a, sizeof a);
    memcpy(r.space + GENL_PAYLOAD + NLA_HDRLEN, text, len);
    if (send(fd, &r, r.h.nlmsg_len, 0) < 0) {
        return err_sys(err, "netlink: send");
    }
    return 0;
}

/* Read answers up to the acknowledgement; the attribute `want`, of 2 bytes, goes to *ret_value. */
static int answer(int fd, uint16_t want, uint16_t *ret_value, struct err *err)
{
    union {
        struct nlmsghdr h;
        char space[REPLY_MAX];
    } r;
    for (;;) {
        ssize_t n = recv(fd, &r, sizeof r, 0);
        if (n < (ssize_t)NLMSG_HDRLEN) {
            return err_sys(err, "netlink: recv");
        }
        for (ssize_t at = 0; at + (ssize_t)NLMSG_HDRLEN <= n;) {
            struct nlmsghdr h;
            memcpy(&h, r.space + at, sizeof h);
            if (h.nlmsg_len < NLMSG_HDRLEN || h.nlmsg_len > n - at) {
                return err_set(err, ERR_PROTOCOL, "netlink: length");
            }
            if (h.nlmsg_type == NLMSG_ERROR) {
                int code = 0;
                memcpy(&code, r.space + at + NLMSG_HDRLEN, sizeof code);
                errno = -code;
                return code == 0 ? 0 : err_sys(err, "netlink");
            }
            for (ssize_t i = GENL_PAYLOAD; ret_value && i + NLA_HDRLEN <= (ssize_t)h.nlmsg_len;) {
                struct nlattr a;
                memcpy(&a, r.space + at + i, sizeof a);
                if (a.nla_len < NLA_HDRLEN) {
                    break;
                }
                if (a.nla_type == want && a.nla_len == NLA_HDRLEN + sizeof *ret_value) {
                    memcpy(ret_value, r.space + at + i + NLA_HDRLEN, sizeof *ret_value);
                }
                i += NLA_ALIGN(a.nla_len);
            }
            at += NLMSG_ALIGN(h.nlmsg_len);
        }
    }
}

static int listen_to_all(int fd, struct err *err)
{
    uint16_t family = 0;
    char cpus[32];
    (void)snprintf(cpus, sizeof cpus, "0-%d", get_nprocs_conf() - 1);
    int rc = request(fd, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME,
                     TASKSTATS_GENL_NAME, err);
    rc = rc ? rc : answer(fd, CTRL_ATTR_FAMILY_ID, &family, err);
    rc =
        rc ? rc
           : request(fd, family, TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, cpus, err);
    return rc ? rc : answer(fd, 0, NULL, err);
}

int exits_init(struct exits *x, struct err *err)
{
    x->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
    if (x->fd < 0) {
        return err_sys(err, "netlink: socket");
    }
    int rc = listen_to_all(x->fd, err);
    if (rc < 0) {
        (void)close(x->fd);
        x->fd = -1;
        return rc;
    }
    exits_watch(x, 0);
    return 0;
}

void exits_watch(const struct exits *x, pid_t pid)
{
    struct sock_filter code[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, PID_AT),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl((uint32_t)pid), 0, 1),
                                  BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
                                  BPF_STMT(BPF_RET | BPF_K, 0) };
    struct sock_fprog program = { .len = sizeof code / sizeof code[0], .filter = code };
    if (x->fd >= 0) {
        (void)setsockopt(x->fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
    }
}

bool exits_take(const struct exits *x, pid_t pid, int *ret_status)
{
    char r[REPLY_MAX];
    struct taskstats s;
    size_t need = STATS_ATTR + NLA_HDRLEN + offsetof(struct taskstats, ac_flag) + sizeof s.ac_flag;
    bool ended = false;
    for (ssize_t n; (n = recv(x->fd, r, sizeof r, MSG_DONTWAIT)) >= 0;) {
        uint32_t who = 0;
        struct nlattr stats;
        if ((size_t)n < need) {
            continue;
        }
        memcpy(&stats, r + STATS_ATTR, sizeof stats);
        memcpy(&who, r + PID_AT, sizeof who);
        memcpy(&s, r + STATS_ATTR + NLA_HDRLEN,
               offsetof(struct taskstats, ac_flag) + sizeof s.ac_flag);
        if (stats.nla_type == TASKSTATS_TYPE_STATS && who == (uint32_t)pid &&
            s.version >= FIRST_VERSION_WITH_AGROUP && s.ac_flag & AGROUP) {
            *ret_status = (int)s.ac_exitcode;
            ended = true;
        }
    }
    return ended;
}
