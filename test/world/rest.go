// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Core returns the client with which the operator creates, evicts and deletes pods.
func (s *Server) Core() (coreclient.CoreV1Interface, error) {
	config := &rest.Config{Host: "http://world", QPS: -1, Transport: transport{s}}
	config.ContentType = "application/json"
	return coreclient.NewForConfig(config)
}

// transport answers the requests of that client.
type transport struct{ server *Server }

// RoundTrip carries out a request to /api/v1/namespaces/NAMESPACE/RESOURCE[/NAME[/SUBRESOURCE]] or /api/v1/nodes/NAME[/SUBRESOURCE].
func (t transport) RoundTrip(q *http.Request) (*http.Response, error) {
	answer, err := t.handle(q)
	status := http.StatusOK
	var refusal apierrors.APIStatus
	switch {
	case errors.As(err, &refusal):
		s := refusal.Status()
		s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		raw, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		return response(q, int(s.Code), raw), nil
	case err != nil:
		return nil, err
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return response(q, status, raw), nil
}

func response(q *http.Request, status int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Request: q, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)),
		Header: http.Header{"Content-Type": []string{"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
	}
}

func (t transport) handle(q *http.Request) (any, error) {
	var body []byte
	if q.Body != nil {
		var err error
		if body, err = io.ReadAll(q.Body); err != nil {
			return nil, err
		}
	}
	if path, isNode := strings.CutPrefix(q.URL.Path, "/api/v1/nodes/"); isNode && q.Method == http.MethodPatch {
		name, subresource, _ := strings.Cut(path, "/")
		r := Request{Verb: "patch", Kind: Nodes, Subresource: subresource, ObjectKey: client.ObjectKey{Name: name}}
		return metadataOf(t.server.patch(r, types.PatchType(q.Header.Get("Content-Type")), body))
	}
	parts := strings.Split(strings.TrimPrefix(q.URL.Path, "/api/v1/namespaces/"), "/")
	if len(parts) < 2 {
		return nil, fmt.Errorf("the world does not serve %s", q.URL.Path)
	}
	kind := Pods
	if parts[1] == ConfigMaps.Resource {
		kind = ConfigMaps
	}
	r := Request{Kind: kind, ObjectKey: client.ObjectKey{Namespace: parts[0]}}
	if len(parts) > 2 {
		r.Name = parts[2]
	}
	switch {
	case q.Method == http.MethodPost && len(parts) == 4 && parts[3] == "eviction":
		r.Verb, r.Subresource = "create", "eviction"
		var eviction struct{ DeleteOptions *metav1.DeleteOptions }
		if err := json.Unmarshal(body, &eviction); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if eviction.DeleteOptions == nil {
			eviction.DeleteOptions = &metav1.DeleteOptions{}
		}
		return metav1.Status{Status: metav1.StatusSuccess}, t.server.serveDelete(r, *eviction.DeleteOptions)
	case q.Method == http.MethodPost && len(parts) == 2:
		return t.create(r, body, q.URL.Query().Has("dryRun"))
	case q.Method == http.MethodDelete && len(parts) == 3:
		r.Verb = "delete"
		var o metav1.DeleteOptions
		if len(body) > 0 {
			if err := json.Unmarshal(body, &o); err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
		}
		return metav1.Status{Status: metav1.StatusSuccess}, t.server.serveDelete(r, o)
	}
	return nil, fmt.Errorf("the world does not serve %s %s", q.Method, q.URL.Path)
}

// create creates an object and answers with its metadata.
func (t transport) create(r Request, body []byte, isDryRun bool) (any, error) {
	var c content
	if err := utiljson.Unmarshal(body, &c); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	meta(c).SetNamespace(r.Namespace)
	return metadataOf(t.server.serveCreate(r.Kind, c, isDryRun))
}

// metadataOf is the answer to a client that asks for the metadata of an object only.
func metadataOf(c content, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return content{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": c["metadata"]}, nil
}
