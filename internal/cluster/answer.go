// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
)

// metadataOnly asks for an answer with an object's metadata and nothing else; an API server may answer more.
const metadataOnly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// metadataDecoder reads such answers.
var metadataDecoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	utilruntime.Must(corev1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}()

// answers are buffers for answers of the API server. Thousands are read in a rollout, and nothing of them is kept as it is.
var answers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxKeptAnswer is the largest buffer that is used again.
const maxKeptAnswer = 64 << 10

// send sends a request, and returns what is read from its answer, which is the metadata of the object. What read is given is valid until
// it returns.
func send[T any](ctx context.Context, r *rest.Request, read func(answer []byte) (T, error)) (out T, err error) {
	body, err := r.SetHeader("Accept", metadataOnly).Stream(ctx)
	if err != nil {
		return out, err
	}
	defer body.Close()
	buffer := answers.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Reset(); buffer.Cap() <= maxKeptAnswer {
			answers.Put(buffer)
		}
	}()
	_, err = buffer.ReadFrom(body)
	if err == nil {
		out, err = read(buffer.Bytes())
	}
	if err != nil {
		return out, fmt.Errorf("reading the answer: %w", err)
	}
	return out, nil
}

// readNothing reads nothing of an answer.
func readNothing([]byte) (struct{}, error) { return struct{}{}, nil }

// readMetadata reads an object's metadata without who manages which field: most of it.
func readMetadata(answer []byte) (*metav1.ObjectMeta, error) {
	if meta := decodeUnmanaged(findMetadata(answer)); meta != nil {
		return meta, nil
	}
	meta, err := decodeMetadata(answer)
	if err != nil {
		return nil, err
	}
	meta.ManagedFields = nil
	return meta, nil
}

// readVersion reads the version of an object.
func readVersion(answer []byte) (string, error) {
	if version, isFound := findVersion(answer); isFound {
		return version, nil
	}
	meta, err := decodeMetadata(answer)
	if err != nil {
		return "", err
	}
	return meta.ResourceVersion, nil
}

// Fields of what is found in an answer in protobuf: a runtime.Unknown has the kind and the object.
const (
	magicOfProtobuf = "k8s\x00"
	fieldTypeMeta   = 1
	fieldKind       = 2
	fieldObject     = 2
	fieldMetadata   = 1
	fieldVersion    = 6
	fieldManagers   = 17
)

// findVersion finds the version of an object in an answer that is its metadata in protobuf. The annotations of a node, which is written to
// several times in each rollout, are most of it, and are not decoded.
func findVersion(answer []byte) (version string, isFound bool) {
	version = string(findField(findMetadata(answer), fieldVersion))
	return version, version != ""
}

// findMetadata finds the metadata of an object in an answer that is its metadata in protobuf; nil in any other.
func findMetadata(answer []byte) []byte {
	unknown, isProtobuf := bytes.CutPrefix(answer, []byte(magicOfProtobuf))
	if !isProtobuf || string(findField(findField(unknown, fieldTypeMeta), fieldKind)) != "PartialObjectMetadata" {
		return nil
	}
	return findField(findField(unknown, fieldObject), fieldMetadata)
}

// decodeUnmanaged decodes all of an object's metadata but who manages which field; nil if it cannot be decoded so, or there is none.
func decodeUnmanaged(metadata []byte) *metav1.ObjectMeta {
	if metadata == nil {
		return nil
	}
	meta := &metav1.ObjectMeta{}
	for len(metadata) > 0 {
		number, _, size := protowire.ConsumeField(metadata)
		if size < 0 {
			return nil
		}
		if number != fieldManagers {
			if err := meta.Unmarshal(metadata[:size]); err != nil { // which adds to what is there
				return nil
			}
		}
		metadata = metadata[size:]
	}
	return meta
}

// findField returns the content of a field of a message, the last one as decoders do; nil if there is none, or the message cannot be parsed.
func findField(message []byte, number protowire.Number) (found []byte) {
	for len(message) > 0 {
		n, t, size := protowire.ConsumeField(message)
		if size < 0 {
			return nil
		}
		if n == number && t == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(message)
			found, _ = protowire.ConsumeBytes(message[tag:])
		}
		message = message[size:]
	}
	return found
}

// decodeMetadata decodes the metadata of an object.
func decodeMetadata(answer []byte) (*metav1.ObjectMeta, error) {
	decoded, _, err := metadataDecoder.Decode(answer, nil, nil)
	if err != nil {
		return nil, err
	}
	object, ok := decoded.(metav1.ObjectMetaAccessor)
	if !ok {
		return nil, fmt.Errorf("it is a %T", decoded)
	}
	meta, ok := object.GetObjectMeta().(*metav1.ObjectMeta)
	if !ok {
		return nil, fmt.Errorf("its metadata is a %T", object.GetObjectMeta())
	}
	return meta, nil
}
