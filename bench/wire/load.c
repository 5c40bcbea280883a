/* Clients that send chats in a closed loop, and check every answer. Prints one JSON object.
 *
 * load --port N --request FILE... --in-flight N --seconds S [--chats N] [--sessions N] [--every-us N] [--rest-us N]
 *      [--chunks N] [--ramp-us N] [--timeout S]
 *
 * FILE contains the request, byte for byte, so that the process list shows no key. Several are the turns of a session:
 * each client sends them in order and begins again, --sessions times or until the end. Marks in them are replaced
 * (turns.h). With --every-us a client's requests begin at that interval, or as soon as the last one is answered; those
 * that begin late are timed from when they were due. With --rest-us it rests so long after each answer. With --chunks the
 * answers are streams of `upstream` with that many chunks. The clients start evenly over --ramp-us. A chat without an
 * answer --timeout seconds after the end has failed.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "times.h"
#include "turns.h"
#include "wire.h"

enum { EVENTS_AT_ONCE = 512, READ_BYTES = 131072, FAILURES_MOST = 100, REFUSED = 429 };
/* Delay before a client retries after a refusal or a failure. */
#define REST_NS 20000000u
/* A request this late waited for our own turn, not for an answer. */
#define OWN_DELAY_NS 2000000u
enum state { RESTING, CONNECTING, SENDING, IN_HEAD, IN_BODY };
enum framing { BY_LENGTH, BY_CHUNKS, BY_CLOSE };
enum chunk_part { SIZE, DATA, DATA_END, LAST_LINE };

struct client {
    int socket; /* -1: none. */
    enum state state;
    uint64_t moment_ns; /* Time of the request; while the client rests, of the next one. */
    uint64_t due_ns; /* With --every-us, when the request was to begin. */
    long turn, sessions; /* Index of the current request; sessions that have ended. */
    char session_digits[MARK_CHARACTERS];
    struct bytes own; /* The current request, if it has marks. */
    const struct bytes *request;
    size_t sent;
    struct bytes head, body; /* In a stream, the body is the current line. */
    int status;
    bool closes_after;
    enum framing framing;
    enum chunk_part part;
    size_t left; /* Remaining bytes of the body or of the HTTP chunk. */
    long chunks;
    bool is_done; /* The stream's last event was received. */
};

static struct sockaddr_in address;
static long in_flight = 1, chats_most, sessions_most, chunks_expected;
static double seconds = 5, timeout_s = 30;
static uint64_t ramp_ns, every_ns, rest_ns;

static int epoll;
static uint64_t end_ns;
static long active, resting, unfinished;
static unsigned long started, answered, answered_in_time, chunks, chunks_in_time, connections, prompt_tokens,
    completion_tokens, refused;
static struct { unsigned long status, connection, content, unanswered; } failures;
static int failed_status;
static char failed_body[300];
static struct times whole, first, late;

static unsigned long failed(void) {
    return failures.status + failures.connection + failures.content + failures.unanswered;
}

static bool may_ask(uint64_t moment_ns) {
    return moment_ns < end_ns && unfinished && (!chats_most || started < (unsigned long)chats_most) &&
           failed() < FAILURES_MOST;
}

static bool is_finished(const struct client *client) { return sessions_most && client->sessions == sessions_most; }

static void watch(struct client *client, int operation, unsigned events) {
    struct epoll_event event = {.events = events, .data.ptr = client};
    if (epoll_ctl(epoll, operation, client->socket, &event)) fail("epoll");
}

static void disconnect(struct client *client) {
    if (client->socket >= 0) close(client->socket);
    client->socket = -1;
}

static void rest(struct client *client, uint64_t until_ns) {
    if (client->state != RESTING) active--, resting++;
    client->state = RESTING;
    client->moment_ns = until_ns;
}

static void lose_connection(struct client *client) {
    failures.connection++;
    disconnect(client);
    rest(client, now_ns() + REST_NS);
}

/* Sends what the socket takes now, and the rest when it has room. */
static bool send_request(struct client *client) {
    const struct bytes *request = client->request;
    bool had_to_wait = client->state == SENDING || client->state == CONNECTING;
    while (client->sent < request->length) {
        ssize_t more = send(client->socket, request->data + client->sent, request->length - client->sent, MSG_NOSIGNAL);
        if (more < 0 && errno != EAGAIN) return false;
        if (more < 0) {
            if (client->state != SENDING) watch(client, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
            client->state = SENDING;
            return true;
        }
        client->sent += (size_t)more;
    }
    if (had_to_wait) watch(client, EPOLL_CTL_MOD, EPOLLIN);
    client->state = IN_HEAD;
    return true;
}

static void prepare_request(struct client *client) {
    const struct turn *turn = &turns[client->turn];
    client->sent = 0;
    client->request = turn->mark_count ? &client->own : &turn->request;
    if (turn->mark_count) write_marked(&client->own, turn, client->session_digits);
}

static void take_next_turn(struct client *client) {
    client->due_ns += every_ns;
    if (++client->turn < turn_count) return;
    client->turn = 0;
    client->sessions++;
    write_digits(client->session_digits);
    unfinished -= is_finished(client);
}

static void ask(struct client *client) {
    resting -= client->state == RESTING;
    active += client->state == RESTING;
    started++;
    client->head.length = client->body.length = 0;
    client->chunks = 0;
    client->is_done = false;
    prepare_request(client);
    client->moment_ns = now_ns();
    if (every_ns && client->moment_ns > client->due_ns + OWN_DELAY_NS) client->moment_ns = client->due_ns;
    if (client->socket >= 0) {
        client->state = IN_HEAD;
        if (!send_request(client)) lose_connection(client);
        return;
    }
    int yes = 1;
    client->socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    client->state = CONNECTING;
    connections++;
    setsockopt(client->socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(client->socket, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) {
        lose_connection(client);
        return;
    }
    watch(client, EPOLL_CTL_ADD, EPOLLOUT);
}

static bool is_as_expected(const struct client *client) {
    if (chunks_expected) return client->is_done && client->chunks == chunks_expected;
    return client->body.length && strstr(client->body.data, WHOLE_ANSWER);
}

static unsigned long number_after(const char *text, size_t length, const char *name) {
    const char *found = memmem(text, length, name, strlen(name));
    return found ? strtoul(found + strlen(name), NULL, 10) : 0;
}

static void add_usage(const char *text, size_t length) {
    prompt_tokens += number_after(text, length, "\"prompt_tokens\":");
    completion_tokens += number_after(text, length, "\"completion_tokens\":");
}

static void end_answer(struct client *client, uint64_t moment_ns) {
    bool is_good = client->status == 200 && is_as_expected(client);
    if (is_good) {
        answered++;
        note(&whole, (moment_ns - client->moment_ns) / 1000);
        if (!chunks_expected) add_usage(client->body.data, client->body.length);
        answered_in_time += moment_ns < end_ns;
    } else if (client->status == REFUSED) {
        refused++;
    } else {
        *(client->status == 200 ? &failures.content : &failures.status) += 1;
        failed_status = client->status;
        snprintf(failed_body, sizeof failed_body, "%s", client->body.length ? client->body.data : "");
    }
    if (client->closes_after || client->sent < client->request->length) disconnect(client);
    if (is_good) take_next_turn(client);
    uint64_t next_ns = !is_good ? moment_ns + REST_NS : every_ns ? client->due_ns : moment_ns + rest_ns;
    if (next_ns <= moment_ns && !is_finished(client) && may_ask(moment_ns)) ask(client);
    else rest(client, next_ns);
}

static uint32_t read_stamp(const char *text) {
    uint32_t stamp = 0;
    for (int digit = 0; digit < STAMP_CHARACTERS; digit++) {
        const char *found = memchr(stamp_digits, text[digit], 64);
        stamp = stamp << 6 | (uint32_t)(found ? found - stamp_digits : 0);
    }
    return stamp;
}

/* Reads the text of one event, which has one chunk, or several if a gateway joined them. */
static void take_text(struct client *client, const char *text, size_t length, uint64_t moment_ns) {
    for (; length >= STAMP_CHARACTERS; text += STAMP_CHARACTERS, length -= STAMP_CHARACTERS) {
        if (!client->chunks) note(&first, (moment_ns - client->moment_ns) / 1000);
        note(&late, (stamp_of(moment_ns) - read_stamp(text)) & STAMP_MASK);
        client->chunks++;
        chunks++;
        chunks_in_time += moment_ns < end_ns;
    }
}

static void take_line(struct client *client, const char *line, size_t length, uint64_t moment_ns) {
    if (length < 6 || memcmp(line, "data:", 5)) return;
    if (memmem(line, length < 16 ? length : 16, "[DONE]", 6)) {
        client->is_done = true;
        return;
    }
    const char *end = line + length;
    const char *text = memmem(line, length, "\"content\":", 10);
    if (!text) {
        add_usage(line, length);
        return;
    }
    for (text += 10; text < end && *text == ' ';) text++;
    if (text == end || *text++ != '"') return;
    const char *quote = memchr(text, '"', (size_t)(end - text));
    if (quote) take_text(client, text, (size_t)(quote - text), moment_ns);
}

static void take_body(struct client *client, const char *data, size_t length, uint64_t moment_ns) {
    if (!chunks_expected || client->status != 200) {
        append(&client->body, data, length);
        return;
    }
    const char *line_end;
    while ((line_end = memchr(data, '\n', length))) {
        size_t line_length = (size_t)(line_end - data);
        if (client->body.length) {
            append(&client->body, data, line_length);
            take_line(client, client->body.data, client->body.length, moment_ns);
            client->body.length = 0;
        } else {
            take_line(client, data, line_length, moment_ns);
        }
        data = line_end + 1;
        length -= line_length + 1;
    }
    append(&client->body, data, length);
}

/* Returns true if the answer is complete. */
static bool take_chunks(struct client *client, const char *data, size_t length, uint64_t moment_ns) {
    while (length) {
        size_t taken = 1;
        switch (client->part) {
        case SIZE:
            if (*data == '\n') {
                client->left = strtoul(client->head.data, NULL, 16);
                client->head.length = 0;
                client->part = client->left ? DATA : LAST_LINE;
            } else {
                append(&client->head, data, 1);
            }
            break;
        case DATA:
            taken = length < client->left ? length : client->left;
            take_body(client, data, taken, moment_ns);
            client->left -= taken;
            if (!client->left) client->part = DATA_END;
            break;
        case DATA_END:
            if (*data == '\n') client->part = SIZE;
            break;
        case LAST_LINE:
            if (*data == '\n') return true;
        }
        data += taken;
        length -= taken;
    }
    return false;
}

/* Returns true if the answer is complete. */
static bool take(struct client *client, const char *data, size_t length, uint64_t moment_ns) {
    if (client->framing == BY_CHUNKS) return take_chunks(client, data, length, moment_ns);
    take_body(client, data, length, moment_ns);
    client->left -= length < client->left ? length : client->left;
    return client->framing == BY_LENGTH && !client->left;
}

/* Returns how many bytes of the body followed the head; -1: the head is incomplete. */
static long take_head(struct client *client) {
    char *end = client->head.data ? strstr(client->head.data, "\r\n\r\n") : NULL;
    if (!end) return -1;
    *end = 0;
    const char *head = client->head.data;
    client->status = client->head.length > 12 ? atoi(head + 9) : 0;
    client->closes_after = strcasestr(head, "\r\nconnection: close");
    const char *length = strcasestr(head, "\r\ncontent-length:");
    client->framing = strcasestr(head, "\r\ntransfer-encoding: chunked") ? BY_CHUNKS : length ? BY_LENGTH : BY_CLOSE;
    client->left = length ? strtoul(length + strlen("\r\ncontent-length:"), NULL, 10) : 0;
    client->part = SIZE;
    client->state = IN_BODY;
    return (long)(client->head.length - (size_t)(end + 4 - head));
}

static void receive(struct client *client) {
    static char data[READ_BYTES];
    ssize_t received = recv(client->socket, data, sizeof data, 0);
    if (received < 0 && errno == EAGAIN) return;
    uint64_t moment_ns = now_ns();
    if (received <= 0) {
        if (client->state == RESTING) disconnect(client);
        else if (client->state == IN_BODY && client->framing == BY_CLOSE && !received) {
            disconnect(client);
            end_answer(client, moment_ns);
        } else lose_connection(client);
        return;
    }
    const char *body = data;
    size_t length = (size_t)received;
    if (client->state == IN_HEAD) {
        append(&client->head, data, length);
        long of_body = take_head(client);
        if (of_body < 0) return;
        length = (size_t)of_body;
        body = data + received - of_body;
        client->head.length = 0;
    }
    if (take(client, body, length, moment_ns)) end_answer(client, moment_ns);
}

static void on_event(struct client *client, unsigned events) {
    if (client->socket < 0) return;
    if (client->state == SENDING && events & EPOLLIN) {
        /* The answer came before all of the request was sent: a refusal. */
        client->state = IN_HEAD;
        watch(client, EPOLL_CTL_MOD, EPOLLIN);
    }
    if (client->state != CONNECTING && client->state != SENDING) receive(client);
    else if (events & (EPOLLERR | EPOLLHUP) || !send_request(client)) lose_connection(client);
}

static void print_text(const char *text) {
    putchar('"');
    for (; *text; text++) putchar(*text == '"' || *text == '\\' || (unsigned char)*text < 32 ? '\'' : *text);
    putchar('"');
}

static void print_outcome(double elapsed_s) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu_s = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    /* With --chats, the elapsed time counts; otherwise only answers that end within the measured time. */
    bool by_count = (chats_most && started >= (unsigned long)chats_most) || !unfinished;
    double rate_s = by_count ? elapsed_s : seconds;
    printf("{\"started\":%lu,\"answered\":%lu,\"refused\":%lu,\"chunks\":%lu,\"connections\":%lu,\"prompt_tokens\":%lu,"
           "\"completion_tokens\":%lu,\"chats_per_s\":%.2f,\"chunks_per_s\":%.1f,\"cpu_s\":%.4f,",
           started, answered, refused, chunks, connections, prompt_tokens, completion_tokens,
           (double)(by_count ? answered : answered_in_time) / rate_s,
           (double)(by_count ? chunks : chunks_in_time) / rate_s, cpu_s);
    printf("\"failures\":{\"status\":%lu,\"connection\":%lu,\"content\":%lu,\"unanswered\":%lu},\"failed_status\":%d,"
           "\"failed_body\":",
           failures.status, failures.connection, failures.content, failures.unanswered, failed_status);
    print_text(failed_body);
    print_times("whole_ms", &whole);
    print_times("first_ms", &first);
    print_times("late_ms", &late);
    printf("}\n");
}

static void read_options(int count, char **arguments) {
    static const struct option options[] = {
        {"port", 1, 0, 'p'},  {"request", 1, 0, 'r'}, {"in-flight", 1, 0, 'i'}, {"seconds", 1, 0, 's'}, {"chats", 1, 0, 'n'},
        {"chunks", 1, 0, 'c'}, {"ramp-us", 1, 0, 'u'}, {"timeout", 1, 0, 'w'},  {"sessions", 1, 0, 'S'},
        {"every-us", 1, 0, 'e'}, {"rest-us", 1, 0, 'R'}, {0, 0, 0, 0}};
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int option;
    while ((option = getopt_long(count, arguments, "", options, NULL)) != -1) switch (option) {
        case 'p': address.sin_port = htons((uint16_t)atoi(optarg)); break;
        case 'r': read_request(optarg); break;
        case 'i': in_flight = atol(optarg); break;
        case 's': seconds = atof(optarg); break;
        case 'n': chats_most = atol(optarg); break;
        case 'c': chunks_expected = atol(optarg); break;
        case 'u': ramp_ns = (uint64_t)atol(optarg) * 1000; break;
        case 'w': timeout_s = atof(optarg); break;
        case 'S': sessions_most = atol(optarg); break;
        case 'R': rest_ns = (uint64_t)atol(optarg) * 1000; break;
        case 'e': every_ns = (uint64_t)atol(optarg) * 1000; break;
        default: exit(2);
    }
    if (!address.sin_port || !turn_count || in_flight < 1) {
        fprintf(stderr, "load: --port, --request and --in-flight are needed\n");
        exit(2);
    }
}

int main(int count, char **arguments) {
    read_options(count, arguments);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct client *clients = calloc((size_t)in_flight, sizeof *clients);
    if (!clients) fail("memory");
    uint64_t begin_ns = now_ns();
    end_ns = begin_ns + (uint64_t)(seconds * 1e9);
    uint64_t give_up_ns = end_ns + (uint64_t)(timeout_s * 1e9);
    for (long index = 0; index < in_flight; index++) {
        clients[index].socket = -1;
        clients[index].moment_ns = begin_ns + ramp_ns * (uint64_t)index / (uint64_t)in_flight;
        clients[index].due_ns = clients[index].moment_ns;
        write_digits(clients[index].session_digits);
    }
    resting = unfinished = in_flight;
    struct epoll_event events[EVENTS_AT_ONCE];
    for (;;) {
        uint64_t moment_ns = now_ns();
        if (may_ask(moment_ns)) {
            for (long index = 0; resting && index < in_flight && may_ask(moment_ns); index++)
                if (clients[index].state == RESTING && clients[index].moment_ns <= moment_ns && !is_finished(&clients[index]))
                    ask(&clients[index]);
        } else if (!active || moment_ns > give_up_ns) {
            break;
        }
        int ready = epoll_wait(epoll, events, EVENTS_AT_ONCE, resting ? 1 : 50);
        for (int index = 0; index < ready; index++) on_event(events[index].data.ptr, events[index].events);
    }
    failures.unanswered += (unsigned long)active;
    print_outcome((double)(now_ns() - begin_ns) / 1e9);
    return 0;
}
