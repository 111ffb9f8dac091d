// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodeTrimmer is a client that decodes the list of all nodes while it arrives, without the fields that no command reads: of
// thousands of nodes most bytes are names of images. It does not change other requests.
type nodeTrimmer struct {
	client.Client
	core rest.Interface
}

// List reads objects.
func (c nodeTrimmer) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	nodes, ok := list.(*corev1.NodeList)
	o := (&client.ListOptions{}).ApplyOptions(options)
	if !ok || o.LabelSelector != nil || o.FieldSelector != nil || o.Limit > 0 || o.Continue != "" {
		return c.Client.List(ctx, list, options...)
	}
	body, err := c.core.Get().Resource("nodes").SetHeader("Accept", runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := readNodes(bufio.NewReaderSize(body, 1<<16), nodes); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	return nil
}

// envelope is the prefix of a protobuf response. A server without protobuf answers in JSON.
var envelope = []byte("k8s\x00")

// Numbers of the fields that lead to a node, in runtime.Unknown and NodeList.
const (
	envelopeRaw  protowire.Number = 2
	listMetadata protowire.Number = 1
	listItems    protowire.Number = 2
)

// fieldSet is a set of fields of a message: a whole field for nil, otherwise fields of it.
type fieldSet map[protowire.Number]fieldSet

// unreadFields are metadata.managedFields and status.images of a node.
var unreadFields = fieldSet{1: {17: nil}, 3: {8: nil}}

// readNodes reads a NodeList from in.
func readNodes(in *bufio.Reader, into *corev1.NodeList) error {
	if start, err := in.Peek(len(envelope)); err != nil || !bytes.Equal(start, envelope) {
		return json.NewDecoder(in).Decode(into)
	}
	if _, err := in.Discard(len(envelope)); err != nil {
		return err
	}
	var buffer, cut []byte
	opened := false
	err := eachField(in, -1, func(number protowire.Number, length int64) error {
		if number != envelopeRaw {
			return skipBytes(in, length)
		}
		opened = true
		return eachField(in, length, func(number protowire.Number, length int64) (err error) {
			if number != listMetadata && number != listItems {
				return skipBytes(in, length)
			}
			if buffer, err = readBytes(in, buffer, length); err != nil {
				return err
			}
			if number == listMetadata {
				into.ListMeta = metav1.ListMeta{}
				return into.ListMeta.Unmarshal(buffer)
			}
			if cut, err = unreadFields.trimInto(cut[:0], buffer); err != nil {
				return err
			}
			into.Items = append(into.Items, corev1.Node{})
			return into.Items[len(into.Items)-1].Unmarshal(cut)
		})
	})
	if err == nil && !opened {
		return io.ErrUnexpectedEOF
	}
	return err
}

// eachField calls take for each field of the next message, which has length bytes; -1 for one that ends with the response.
// The message must have only length-delimited fields.
func eachField(in *bufio.Reader, length int64, take func(number protowire.Number, length int64) error) error {
	for read := int64(0); length < 0 || read < length; {
		tag, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) && length < 0 {
			return nil
		}
		if err != nil {
			return asUnexpectedEOF(err)
		}
		size, err := binary.ReadUvarint(in)
		if err != nil {
			return asUnexpectedEOF(err)
		}
		number, kind := protowire.DecodeTag(tag)
		if kind != protowire.BytesType || size > 1<<32 {
			return fmt.Errorf("field %d of type %d, %d bytes long, is not part of a list of nodes", number, kind, size)
		}
		if err := take(number, int64(size)); err != nil {
			return err
		}
		read += int64(protowire.SizeVarint(tag)+protowire.SizeVarint(size)) + int64(size)
	}
	return nil
}

func skipBytes(in *bufio.Reader, length int64) error {
	_, err := io.CopyN(io.Discard, in, length)
	return asUnexpectedEOF(err)
}

// readBytes reads length bytes into a buffer, and returns a larger one when it is too small.
func readBytes(in io.Reader, buffer []byte, length int64) ([]byte, error) {
	if int64(cap(buffer)) < length {
		buffer = make([]byte, length+length/4)
	}
	buffer = buffer[:length]
	_, err := io.ReadFull(in, buffer)
	return buffer, asUnexpectedEOF(err)
}

// asUnexpectedEOF turns the end of a response within a message into an error.
func asUnexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// trimInto appends a message to out, without the fields of the set.
func (p fieldSet) trimInto(out, message []byte) ([]byte, error) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, protowire.ParseError(tag)
		}
		length := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if length < 0 {
			return nil, protowire.ParseError(length)
		}
		inner, meant := p[number]
		switch {
		case !meant || kind != protowire.BytesType:
			out = append(out, message[:tag+length]...)
		case inner != nil:
			value, _ := protowire.ConsumeBytes(message[tag:])
			less, err := inner.trimInto(make([]byte, 0, len(value)), value)
			if err != nil {
				return nil, err
			}
			out = protowire.AppendBytes(protowire.AppendTag(out, number, kind), less)
		}
		message = message[tag+length:]
	}
	return out, nil
}
