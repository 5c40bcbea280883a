/* A mock upstream for chat completions: one thread, fast enough that it never limits a measurement.
 *
 * `upstream` prints its base address. The prompt specifies its answer, so that this works through any gateway:
 *   chunks=N     how many chunks a stream has; without it, the words of the answer that is not streamed
 *   pause_us=N   delay between chunks; 0: all are written at once (0)
 *   bytes_a_token=N   by which the usage tells the size of the request; without it, it tells 50 tokens
 * `GET /stats` returns the number of chats and of connections.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "wire.h"

enum { EVENTS_AT_ONCE = 256, READ_BYTES = 65536, LARGEST_REQUEST_BYTES = 64 << 20, NOT_PACED = -1, WHOLE_ANSWER_TOKENS = 45 };

struct connection {
    int socket;
    struct bytes received, unsent;
    size_t sent;
    bool waits_for_room; /* The reader is slower than we are. */
    bool is_answering;
    long chunks, chunks_written, prompt_tokens;
    uint64_t pause_ns, due_ns;
    int place; /* Index among the paced streams, or NOT_PACED. */
};

static int epoll, timer;
static struct { unsigned long chats, connections, chunks, left; } stats;

/* Streams with chunks left. There are few, so the next one due is found by a linear search. */
static struct connection **paced;
static int paced_count, paced_capacity;

static void pace(struct connection *connection) {
    if (paced_count == paced_capacity) {
        paced_capacity = paced_capacity ? 2 * paced_capacity : 64;
        paced = realloc(paced, sizeof *paced * (size_t)paced_capacity);
        if (!paced) fail("memory");
    }
    connection->place = paced_count;
    paced[paced_count++] = connection;
}

static void stop_pacing(struct connection *connection) {
    if (connection->place == NOT_PACED) return;
    struct connection *last = paced[--paced_count];
    paced[last->place = connection->place] = last;
    connection->place = NOT_PACED;
}

static void close_connection(struct connection *connection) {
    stats.left += connection->is_answering;
    stop_pacing(connection);
    close(connection->socket);
    free(connection->received.data);
    free(connection->unsent.data);
    free(connection);
}

/* Returns false if the reader has disconnected; the connection is freed then. */
static bool send_unsent(struct connection *connection) {
    struct bytes *unsent = &connection->unsent;
    while (connection->sent < unsent->length) {
        ssize_t sent =
            send(connection->socket, unsent->data + connection->sent, unsent->length - connection->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) break;
        if (sent < 0) {
            close_connection(connection);
            return false;
        }
        connection->sent += (size_t)sent;
    }
    bool waits = connection->sent < unsent->length;
    if (!waits) unsent->length = connection->sent = 0;
    if (waits != connection->waits_for_room) {
        connection->waits_for_room = waits;
        struct epoll_event event = {.events = EPOLLIN | (waits ? EPOLLOUT : 0u), .data.ptr = connection};
        epoll_ctl(epoll, EPOLL_CTL_MOD, connection->socket, &event);
    }
    return true;
}

#define CHUNK_HEAD \
    "{\"id\":\"chatcmpl-played0123456789\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"      \
    "\"model\":\"mock-model\",\"choices\":["
#define STAMP_PLACE "STAMP"

/* Writes one HTTP chunk: its length and the event. */
static void append_event(struct bytes *bytes, const char *json) {
    char length[20];
    snprintf(length, sizeof length, "%zx\r\n", strlen("data: \n\n") + strlen(json));
    append_text(bytes, length);
    append_text(bytes, "data: ");
    append_text(bytes, json);
    append_text(bytes, "\n\n\r\n");
}

static void append_stream_head(struct bytes *bytes) {
    append_text(bytes, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                       "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n");
    append_event(bytes, CHUNK_HEAD "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                                   "\"finish_reason\":null}]}");
}

static void append_chunk(struct bytes *bytes) {
    static struct bytes template;
    static char *stamp;
    if (!stamp) {
        append_event(&template, CHUNK_HEAD "{\"index\":0,\"delta\":{\"content\":\"" STAMP_PLACE "\"},"
                                           "\"finish_reason\":null}]}");
        stamp = strstr(template.data, STAMP_PLACE);
    }
    write_stamp(stamp, stamp_of(now_ns()));
    append(bytes, template.data, template.length);
    stats.chunks++;
}

static void append_stream_end(struct bytes *bytes, long chunks, long prompt_tokens) {
    char usage[400];
    snprintf(usage, sizeof usage,
             CHUNK_HEAD "],\"usage\":{\"prompt_tokens\":%ld,\"completion_tokens\":%ld,\"total_tokens\":%ld}}",
             prompt_tokens, chunks, chunks + prompt_tokens);
    append_event(bytes, CHUNK_HEAD "{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}");
    append_event(bytes, usage);
    append_event(bytes, "[DONE]");
    append_text(bytes, "0\r\n\r\n");
}

/* Writes the answer that is not streamed as a stream, a word in each chunk. */
static void append_words(struct bytes *bytes, long prompt_tokens) {
    char event[300];
    for (const char *word = WHOLE_ANSWER, *end; *word; word = end) {
        end = strchr(word + 1, ' ');
        if (!end) end = word + strlen(word);
        snprintf(event, sizeof event, CHUNK_HEAD "{\"index\":0,\"delta\":{\"content\":\"%.*s\"},\"finish_reason\":null}]}",
                 (int)(end - word), word);
        append_event(bytes, event);
    }
    append_stream_end(bytes, WHOLE_ANSWER_TOKENS, prompt_tokens);
}

static void append_whole(struct bytes *bytes, const char *status, const char *json) {
    char head[200];
    snprintf(head, sizeof head, "HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n", status,
             strlen(json));
    append_text(bytes, head);
    append_text(bytes, json);
}

/* Writes the chunks of the stream that are due. */
static bool write_due_chunks(struct connection *connection) {
    uint64_t moment_ns = now_ns();
    while (connection->chunks_written < connection->chunks && connection->due_ns <= moment_ns) {
        append_chunk(&connection->unsent);
        connection->chunks_written++;
        /* Computed from the start, so a late chunk does not delay the next. */
        connection->due_ns += connection->pause_ns;
    }
    if (connection->chunks_written == connection->chunks) {
        append_stream_end(&connection->unsent, connection->chunks, connection->prompt_tokens);
        connection->is_answering = false;
        stop_pacing(connection);
    } else if (connection->place == NOT_PACED) {
        pace(connection);
    }
    return send_unsent(connection);
}

static long wish(const char *body, const char *name, long otherwise) {
    const char *found = strstr(body, name);
    return found ? strtol(found + strlen(name), NULL, 10) : otherwise;
}

static bool answer_chat(struct connection *connection, const char *body, size_t body_bytes) {
    stats.chats++;
    long token_bytes = wish(body, "bytes_a_token=", 0);
    connection->prompt_tokens = token_bytes > 0 ? (long)body_bytes / token_bytes : 50;
    if (!strstr(body, "\"stream\":true") && !strstr(body, "\"stream\": true")) {
        char json[700];
        snprintf(json, sizeof json,
                 "{\"id\":\"chatcmpl-played0123456789\",\"object\":\"chat.completion\",\"created\":1700000000,"
                 "\"model\":\"mock-model\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
                 "\"content\":\"" WHOLE_ANSWER "\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":%ld,"
                 "\"completion_tokens\":%d,\"total_tokens\":%ld}}",
                 connection->prompt_tokens, WHOLE_ANSWER_TOKENS, connection->prompt_tokens + WHOLE_ANSWER_TOKENS);
        append_whole(&connection->unsent, "200 OK", json);
        return send_unsent(connection);
    }
    if (!strstr(body, "chunks=")) {
        append_stream_head(&connection->unsent);
        append_words(&connection->unsent, connection->prompt_tokens);
        return send_unsent(connection);
    }
    connection->chunks = wish(body, "chunks=", 0);
    connection->chunks_written = 0;
    connection->pause_ns = (uint64_t)wish(body, "pause_us=", 0) * 1000;
    connection->due_ns = now_ns();
    connection->is_answering = true;
    append_stream_head(&connection->unsent);
    return write_due_chunks(connection);
}

static bool answer(struct connection *connection, const char *request, const char *body, size_t body_bytes) {
    const char *line_end = strchr(request, '\r');
    const char *path = strchr(request, ' ');
    size_t path_length = path && path < line_end ? (size_t)(line_end - path) : 0;
    if (memmem(path, path_length, "/chat/completions", 17)) return answer_chat(connection, body, body_bytes);
    if (memmem(path, path_length, "/stats", 6)) {
        char json[200];
        snprintf(json, sizeof json, "{\"chats\":%lu,\"connections\":%lu,\"chunks\":%lu,\"left\":%lu}", stats.chats,
                 stats.connections, stats.chunks, stats.left);
        append_whole(&connection->unsent, "200 OK", json);
    } else if (memmem(path, path_length, "/models", 7)) {
        append_whole(&connection->unsent, "200 OK",
                     "{\"object\":\"list\",\"data\":[{\"id\":\"mock-model\",\"object\":\"model\",\"created\":1700000000,"
                     "\"owned_by\":\"bench\"}]}");
    } else {
        append_whole(&connection->unsent, "404 Not Found", "{\"error\":{\"message\":\"There is nothing here.\"}}");
    }
    return send_unsent(connection);
}

/* Answers every complete request. Chunked requests are not supported: no gateway sends them. */
static void serve(struct connection *connection) {
    struct bytes *received = &connection->received;
    while (!connection->is_answering && received->length) {
        char *head_end = strstr(received->data, "\r\n\r\n");
        if (!head_end) return;
        const char *length = strcasestr(received->data, "\r\ncontent-length:");
        size_t body_bytes = length && length < head_end ? strtoul(length + strlen("\r\ncontent-length:"), NULL, 10) : 0;
        size_t request_bytes = (size_t)(head_end + 4 - received->data) + body_bytes;
        if (request_bytes > LARGEST_REQUEST_BYTES) {
            close_connection(connection);
            return;
        }
        if (received->length < request_bytes) return;
        if (!answer(connection, received->data, head_end + 4, body_bytes)) return;
        memmove(received->data, received->data + request_bytes, received->length - request_bytes + 1);
        received->length -= request_bytes;
    }
}

static void receive(struct connection *connection) {
    static char data[READ_BYTES];
    for (;;) {
        ssize_t received = recv(connection->socket, data, sizeof data, 0);
        if (received < 0 && errno == EAGAIN) break;
        if (received <= 0) {
            close_connection(connection);
            return;
        }
        append(&connection->received, data, (size_t)received);
        if ((size_t)received < sizeof data) break;
    }
    serve(connection);
}

static void accept_all(int listener) {
    int socket, yes = 1;
    while ((socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        struct connection *connection = calloc(1, sizeof *connection);
        if (!connection) fail("memory");
        connection->socket = socket;
        connection->place = NOT_PACED;
        stats.connections++;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
        epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event);
    }
}

/* Sets the timer to when the next chunk is due; a time in the past fires at once. */
static void set_timer(void) {
    static uint64_t set_to_ns;
    uint64_t due_ns = 0;
    for (int place = 0; place < paced_count; place++)
        if (!due_ns || paced[place]->due_ns < due_ns) due_ns = paced[place]->due_ns;
    if (due_ns == set_to_ns) return;
    struct itimerspec setting = {.it_value = {(time_t)(due_ns / 1000000000), (long)(due_ns % 1000000000)}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &setting, NULL);
    set_to_ns = due_ns;
}

static int listen_anywhere(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("http://127.0.0.1:%d/v1\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int main(void) {
    int listener = listen_anywhere();
    epoll = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &listener};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    event.data.ptr = &timer;
    epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event);
    struct epoll_event events[EVENTS_AT_ONCE];
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS_AT_ONCE, -1);
        for (int index = 0; index < count; index++) {
            void *source = events[index].data.ptr;
            if (source == &listener) {
                accept_all(listener);
            } else if (source == &timer) {
                uint64_t times;
                if (read(timer, &times, sizeof times) < 0 && errno != EAGAIN) fail("timer");
            } else if (!(events[index].events & EPOLLOUT) || send_unsent(source)) {
                if (events[index].events & ~(unsigned)EPOLLOUT) receive(source);
            }
        }
        /* Backwards, because the last stream moves to the place of one that ends. */
        uint64_t moment_ns = now_ns();
        for (int place = paced_count - 1; place >= 0; place--)
            if (paced[place]->due_ns <= moment_ns) write_due_chunks(paced[place]);
        set_timer();
    }
}
