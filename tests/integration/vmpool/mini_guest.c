/* The smallest agent that vmpool can snapshot: PID 1 of a test initramfs, without a root file
 * system of its own.
 *
 * It loads the modules named in /modules, opens the port brood.agent, says hello, and then answers
 * PING with HELLO, IDENTITY with READY, and RUN by running one of three built-in commands
 * (argv[0]): "true" exits 0; "uptime" prints the monotonic clock; "spin" runs until it is killed.
 * vmpool's tests and the nested KVM test use it where the real template would cost more time than
 * it adds. */
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/wire/frame.h"
#include "schemas/proto/guest.pb.h"

static void say(const char *text)
{
    int fd = open("/dev/console", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, text, strlen(text));
        (void)close(fd);
    }
}

static void die(const char *text)
{
    say(text);
    (void)reboot(RB_POWER_OFF);
    for (;;) {
        (void)pause();
    }
}

static void load_modules(void)
{
    FILE *list = fopen("/modules", "re");
    char name[256];
    while (list && fgets(name, sizeof name, list)) {
        name[strcspn(name, "\n")] = 0;
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || syscall(SYS_finit_module, fd, "", 0) < 0) {
            say(name);
            say(": not loaded\n");
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    if (list) {
        (void)fclose(list);
    }
}

/* The port's number depends on the order of the devices: look for its name. */
static int open_port(void)
{
    for (int tries = 0; tries < 500; tries++) {
        DIR *dir = opendir("/sys/class/virtio-ports");
        struct dirent *e;
        while (dir && (e = readdir(dir))) {
            char path[512], name[64] = "";
            (void)snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", e->d_name);
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            if (fd < 0) {
                continue;
            }
            (void)!read(fd, name, sizeof name - 1);
            (void)close(fd);
            if (strncmp(name, "brood.agent", 11) == 0) {
                (void)snprintf(path, sizeof path, "/dev/%s", e->d_name);
                (void)closedir(dir);
                return open(path, O_RDWR | O_CLOEXEC);
            }
        }
        if (dir) {
            (void)closedir(dir);
        }
        (void)usleep(10000);
    }
    return -1;
}

static void put(int fd, const void *data, size_t n)
{
    const char *p = data;
    while (n > 0) {
        ssize_t w = write(fd, p, n);
        if (w <= 0) {
            (void)usleep(1000); /* the host may be away */
            continue;
        }
        p += w;
        n -= (size_t)w;
    }
}

static uint8_t out[FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX];

static void send_message(int fd, enum frame_type type, const pb_msgdesc_t *fields,
                         const void *message)
{
    int n = frame_encode(out, sizeof out, type, fields, message, NULL);
    if (n < 0) {
        die("mini guest: encode\n");
    }
    put(fd, out, (size_t)n);
}

static void run(int fd, const guest_Run *r)
{
    guest_Started started = { .run = r->run };
    send_message(fd, FRAME_STARTED, guest_Started_fields, &started);
    const char *argv0 = (const char *)r->argv.bytes;
    if (strcmp(argv0, "uptime") == 0) {
        struct timespec ts;
        (void)clock_gettime(CLOCK_MONOTONIC, &ts);
        char text[64];
        int n =
            snprintf(text, sizeof text, "%lld\n", (long long)ts.tv_sec * 1000000000LL + ts.tv_nsec);
        uint8_t header[FRAME_HEADER_BYTES];
        frame_header(header, FRAME_OUTPUT, 1, (size_t)n);
        put(fd, header, sizeof header);
        put(fd, text, (size_t)n);
    }
    while (strcmp(argv0, "spin") == 0) {
        __asm__ volatile("");
    }
    guest_Exit e = { .run = r->run };
    send_message(fd, FRAME_EXIT, guest_Exit_fields, &e);
}

int main(void)
{
    (void)mkdir("/proc", 0755);
    (void)mkdir("/sys", 0755);
    (void)mkdir("/dev", 0755);
    (void)mount("proc", "/proc", "proc", 0, NULL);
    (void)mount("sys", "/sys", "sysfs", 0, NULL);
    (void)mount("dev", "/dev", "devtmpfs", 0, NULL);
    load_modules();
    int fd = open_port();
    if (fd < 0) {
        die("mini guest: no port brood.agent\n");
    }
    guest_Hello hello = { .protocol = GUEST_PROTOCOL_VERSION, .agent = "mini" };
    send_message(fd, FRAME_HELLO, guest_Hello_fields, &hello);
    struct frame_parser parser;
    frame_parser_init(&parser);
    static guest_Run r;
    for (;;) {
        size_t room;
        uint8_t *at = frame_parser_space(&parser, &room);
        ssize_t n = read(fd, at, room);
        if (n <= 0) {
            (void)usleep(1000);
            continue;
        }
        frame_parser_filled(&parser, (size_t)n);
        struct frame f;
        while (frame_parser_next(&parser, &f, NULL) == 1) {
            if (f.type == FRAME_PING) {
                send_message(fd, FRAME_HELLO, guest_Hello_fields, &hello);
            } else if (f.type == FRAME_IDENTITY) {
                guest_Ready ready = { .reseeded = true };
                send_message(fd, FRAME_READY, guest_Ready_fields, &ready);
            } else if (f.type == FRAME_RUN && frame_decode(&f, guest_Run_fields, &r, NULL) == 0) {
                run(fd, &r);
            }
        }
    }
}
