// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"

	opv1 "github.com/skyhook-k8s/skyhook/api/nodeop/v1alpha1"
	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
)

// object is an object of the API server by its kind and the bytes of its JSON.
type object struct {
	kind  string
	bytes int
}

// sizeWatcher finds the largest object while a phase runs.
type sizeWatcher struct {
	typed   *kubernetes.Clientset
	largest object
	err     error
	cancel  context.CancelFunc
	ended   chan struct{}
}

// reportingLists are the lists of the objects to which the operator reports. They are largest while a phase runs.
var reportingLists = map[string]string{
	"Skyhook":          "/apis/" + v1alpha1.GroupVersion.String() + "/skyhooks",
	"DeploymentPolicy": "/apis/" + v1alpha1.GroupVersion.String() + "/deploymentpolicies",
	"NodeOp":           "/apis/" + opv1.GroupVersion.String() + "/nodeops",
}

// nodeLists are the lists with an object for each node. They are read once, at the end of a phase.
var nodeLists = map[string]string{
	"Node":      "/api/v1/nodes",
	"ConfigMap": "/api/v1/namespaces/" + namespace + "/configmaps",
}

// watchSizes starts to read the sizes of objects, every two seconds.
func (f *simulation) watchSizes(ctx context.Context) *sizeWatcher {
	w := &sizeWatcher{typed: f.typed, ended: make(chan struct{})}
	ctx, w.cancel = context.WithCancel(ctx)
	go func() {
		defer close(w.ended)
		for w.err == nil {
			if sleep(ctx, 2*time.Second) != nil {
				return
			}
			w.err = w.read(ctx, reportingLists)
		}
	}()
	return w
}

// stop reads the sizes of all objects, and returns the largest object of the phase.
func (w *sizeWatcher) stop(ctx context.Context) (object, error) {
	w.cancel()
	<-w.ended
	for _, lists := range []map[string]string{reportingLists, nodeLists} {
		if err := w.read(ctx, lists); err != nil {
			return object{}, err
		}
	}
	return w.largest, nil
}

// read reads the objects of some lists.
func (w *sizeWatcher) read(ctx context.Context, lists map[string]string) error {
	for kind, path := range lists {
		next := ""
		for {
			answer, err := w.typed.Discovery().RESTClient().Get().AbsPath(path).Param("limit", "500").Param("continue", next).
				SetHeader("Accept", "application/json").DoRaw(ctx)
			if err != nil {
				if ctx.Err() != nil {
					return nil // the phase has ended
				}
				return fmt.Errorf("listing objects of kind %s: %w", kind, err)
			}
			var list struct {
				Metadata struct {
					Continue string `json:"continue"`
				} `json:"metadata"`
				Items []json.RawMessage `json:"items"`
			}
			if err := json.Unmarshal(answer, &list); err != nil {
				return fmt.Errorf("listing objects of kind %s: %w", kind, err)
			}
			for _, item := range list.Items {
				if len(item) > w.largest.bytes {
					w.largest = object{kind, len(item)}
				}
			}
			if next = list.Metadata.Continue; next == "" {
				break
			}
		}
	}
	return nil
}
