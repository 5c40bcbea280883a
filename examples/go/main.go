// Calls Legato over gRPC: one answer, a stream with a tool, and how calls end early or are refused.
//
//	LEGATO_ADDRESS=unix:/path/to/run/chat.sock LEGATO_API_KEY=sk-legato-... go run .
//
// On TCP, LEGATO_TLS_CA, LEGATO_TLS_CERT and LEGATO_TLS_KEY name the PEM files of the authority and of this program.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	chatv1 "legato/chat/v1"
)

const deadline = time.Minute

func main() {
	security, err := transportSecurity()
	check(err)
	connection, err := grpc.NewClient(os.Getenv("LEGATO_ADDRESS"), grpc.WithTransportCredentials(security))
	check(err)
	defer connection.Close()
	client := chatv1.NewChatServiceClient(connection)

	key := os.Getenv("LEGATO_API_KEY")
	check(answer(client, key))
	check(streamWithTool(client, key))
	cancel(client, key)
	refused("deadline", client, key, "Think for a long time.", time.Second/2)
	refused("out of credit", client, os.Getenv("LEGATO_API_KEY_WITHOUT_CREDIT"), "Say hello.", deadline)
	refused("revoked key", client, os.Getenv("LEGATO_REVOKED_API_KEY"), "Say hello.", deadline)
}

func transportSecurity() (credentials.TransportCredentials, error) {
	if strings.HasPrefix(os.Getenv("LEGATO_ADDRESS"), "unix:") {
		return insecure.NewCredentials(), nil
	}
	authority, err := os.ReadFile(os.Getenv("LEGATO_TLS_CA"))
	if err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(os.Getenv("LEGATO_TLS_CERT"), os.Getenv("LEGATO_TLS_KEY"))
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	// The certificate of every edge is issued to this name, whatever its address is.
	return credentials.NewTLS(&tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{own}, ServerName: "edge"}), nil
}

// callFor returns the context of a call on behalf of a key.
func callFor(key string, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key), cancel
}

func ask(text string) *chatv1.Chat {
	question := &chatv1.Message{Role: chatv1.Role_ROLE_USER, Content: &chatv1.Message_Text{Text: text}}
	return &chatv1.Chat{Model: "mezzo", Messages: []*chatv1.Message{question}}
}

func answer(client chatv1.ChatServiceClient, key string) error {
	ctx, done := callFor(key, deadline)
	defer done()
	response, err := client.Complete(ctx, &chatv1.CompleteRequest{Chat: ask("Say hello.")})
	if err != nil {
		return err
	}
	fmt.Printf("answer: %s (%d nano-dollars)\n", response.Message.Text, response.Usage.CostNanos)
	return nil
}

func streamWithTool(client chatv1.ChatServiceClient, key string) error {
	const parameters = `{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`
	weather := &chatv1.Function{Name: "get_weather", Description: "The present weather of a city", ParametersJson: parameters}
	chat := ask("How is the weather in Paris?")
	chat.Tools = []*chatv1.Tool{{Kind: &chatv1.Tool_Function{Function: weather}}}
	asked, err := read(client, key, chat)
	if err != nil {
		return err
	}
	chat.Messages = append(chat.Messages, asked)
	for _, call := range asked.ToolCalls {
		var arguments struct{ City string }
		if err := json.Unmarshal([]byte(call.Arguments), &arguments); err != nil {
			return err
		}
		chat.Messages = append(chat.Messages, &chatv1.Message{
			Role:       chatv1.Role_ROLE_TOOL,
			ToolCallId: call.Id,
			Content:    &chatv1.Message_Text{Text: fmt.Sprintf("Rain in %s, 11 °C", arguments.City)},
		})
	}
	told, err := read(client, key, chat)
	if err != nil {
		return err
	}
	fmt.Printf("tool: %s: %s\n", asked.ToolCalls[0].Name, told.GetText())
	return nil
}

// read streams an answer, and returns it as the message that continues the conversation.
func read(client chatv1.ChatServiceClient, key string, chat *chatv1.Chat) (*chatv1.Message, error) {
	ctx, done := callFor(key, deadline)
	defer done()
	stream, err := client.Stream(ctx, &chatv1.StreamRequest{Chat: chat})
	if err != nil {
		return nil, err
	}
	message, text := &chatv1.Message{Role: chatv1.Role_ROLE_ASSISTANT}, ""
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		for _, delta := range response.Deltas {
			text += delta.GetText()
			piece := delta.GetToolCall()
			if piece == nil {
				continue
			}
			if int(piece.Index) == len(message.ToolCalls) {
				message.ToolCalls = append(message.ToolCalls, &chatv1.ToolCall{Id: piece.Id, Name: piece.Name})
			}
			message.ToolCalls[piece.Index].Arguments += piece.Arguments
		}
	}
	if text != "" {
		message.Content = &chatv1.Message_Text{Text: text}
	}
	return message, nil
}

func cancel(client chatv1.ChatServiceClient, key string) {
	ctx, cancel := callFor(key, deadline)
	defer cancel()
	stream, err := client.Stream(ctx, &chatv1.StreamRequest{Chat: ask("Tell me a long story.")})
	for err == nil {
		var response *chatv1.StreamResponse
		response, err = stream.Recv()
		if len(response.GetDeltas()) > 0 {
			cancel()
		}
	}
	fmt.Printf("cancel: %s\n", reasonOf(err))
}

// refused sends a chat that cannot be answered, and prints why.
func refused(what string, client chatv1.ChatServiceClient, key, question string, timeout time.Duration) {
	ctx, done := callFor(key, timeout)
	defer done()
	_, err := client.Complete(ctx, &chatv1.CompleteRequest{Chat: ask(question)})
	fmt.Printf("%s: %s\n", what, reasonOf(err))
}

// reasonOf returns the reason that Legato gives (docs/errors.md); what gRPC itself ends has a code alone.
func reasonOf(err error) string {
	switch status.Code(err) {
	case codes.Canceled:
		return "cancelled"
	case codes.DeadlineExceeded:
		return "too late"
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.Reason
		}
	}
	return status.Code(err).String()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
