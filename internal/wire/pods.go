// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podDecoder decodes pods of ours. Those of a stage have the same containers and nearly the same labels and annotations on all nodes, and
// each pod has them in some seven events: specs and texts are decoded once, and shared. Nobody may change the specs.
type podDecoder struct {
	specs       map[string]*corev1.PodSpec // all but the name of the node
	texts       map[string]string          // of labels and annotations
	shared, own []byte                     // memory of parts of a message
}

// Limits of what a podDecoder knows. When it knows as many it begins anew.
const (
	maxSpecs      = 500
	maxTexts      = 4_000
	maxTextLength = 256
)

// Fields of a pod and of parts of it.
const (
	fieldSpec        = 2
	fieldStatus      = 3
	fieldLabels      = 11
	fieldAnnotations = 12
	fieldNodeName    = 10

	fieldConditions     = 2
	fieldContainers     = 8
	fieldInitContainers = 10

	fieldKey   = 1 // of an entry of a map
	fieldValue = 2
)

// fileAnnotation begins the annotations that only the pod itself reads, as files.
const fileAnnotation = "skyhook.nvidia.com/file-"

// decode decodes a pod whose unused fields are removed.
func (d *podDecoder) decode(object []byte) (*corev1.Pod, error) {
	p := &corev1.Pod{}
	for whole, before := object, protowire.Number(0); len(object) > 0; {
		number, value, rest, err := consumeField(object)
		switch {
		case err != nil:
			return nil, err
		case number <= before: // twice, perhaps, and would have to be merged
			p = &corev1.Pod{}
			return p, p.Unmarshal(whole)
		}
		switch before = number; number {
		case fieldMetadata:
			err = d.decodeMetadata(&p.ObjectMeta, value)
		case fieldSpec:
			err = d.decodeSpec(&p.Spec, value)
		case fieldStatus:
			err = decodeStatus(&p.Status, value)
		}
		if err != nil {
			return nil, err
		}
		object = rest
	}
	return p, nil
}

func (d *podDecoder) decodeMetadata(m *metav1.ObjectMeta, message []byte) error {
	d.own = d.own[:0]
	for left := message; len(left) > 0; {
		number, value, rest, err := consumeField(left)
		if err != nil {
			return err
		}
		isParsed := true
		switch number {
		case fieldLabels:
			isParsed = d.addEntry(&m.Labels, value, nil)
		case fieldAnnotations:
			isParsed = d.addEntry(&m.Annotations, value, isFile)
		default:
			d.own = append(d.own, left[:len(left)-len(rest)]...)
		}
		if !isParsed {
			*m = metav1.ObjectMeta{}
			return m.Unmarshal(message)
		}
		left = rest
	}
	return m.Unmarshal(d.own)
}

// isFile reports whether an annotation has a file that only the pod itself reads.
func isFile(annotation []byte) bool { return bytes.HasPrefix(annotation, []byte(fileAnnotation)) }

// addEntry adds an entry of labels or annotations, unless it is unused. It returns false if the entry does not have the form that API
// servers give it.
func (d *podDecoder) addEntry(m *map[string]string, entry []byte, isUnused func(key []byte) bool) bool {
	key, _, rest, hasKey := firstField(entry, fieldKey)
	value, _, rest, hasValue := firstField(rest, fieldValue)
	switch {
	case !hasKey || !hasValue || len(rest) > 0:
		return false
	case isUnused != nil && isUnused(key):
		return true
	case *m == nil:
		*m = map[string]string{}
	}
	(*m)[d.share(key)] = d.share(value)
	return true
}

// share returns a string that equals a text.
func (d *podDecoder) share(text []byte) string {
	if known, isKnown := d.texts[string(text)]; isKnown {
		return known
	}
	if len(text) > maxTextLength {
		return string(text)
	}
	if d.texts == nil || len(d.texts) >= maxTexts {
		d.texts = map[string]string{}
	}
	out := string(text)
	d.texts[out] = out
	return out
}

func (d *podDecoder) decodeSpec(s *corev1.PodSpec, message []byte) error {
	d.shared, d.own = d.shared[:0], d.own[:0]
	for len(message) > 0 {
		number, _, rest, err := consumeField(message)
		if err != nil {
			return err
		}
		part := &d.shared
		if number == fieldNodeName {
			part = &d.own
		}
		*part = append(*part, message[:len(message)-len(rest)]...)
		message = rest
	}
	known := d.specs[string(d.shared)]
	if known == nil {
		known = &corev1.PodSpec{}
		if err := known.Unmarshal(d.shared); err != nil {
			return err
		}
		if d.specs == nil || len(d.specs) >= maxSpecs {
			d.specs = map[string]*corev1.PodSpec{}
		}
		d.specs[string(d.shared)] = known
	}
	*s = *known
	return s.Unmarshal(d.own)
}

// decodeStatus makes room for all entries of lists first: they are large, and added one by one.
func decodeStatus(s *corev1.PodStatus, message []byte) error {
	counts := map[protowire.Number]int{}
	for left := message; len(left) > 0; {
		number, _, rest, err := consumeField(left)
		if err != nil {
			return err
		}
		counts[number]++
		left = rest
	}
	if n := counts[fieldContainers]; n > 1 {
		s.ContainerStatuses = make([]corev1.ContainerStatus, 0, n)
	}
	if n := counts[fieldInitContainers]; n > 1 {
		s.InitContainerStatuses = make([]corev1.ContainerStatus, 0, n)
	}
	if n := counts[fieldConditions]; n > 1 {
		s.Conditions = make([]corev1.PodCondition, 0, n)
	}
	return s.Unmarshal(message)
}

// consumeField returns the first field of a message: its number, its content if it has a length, and the rest of the message.
func consumeField(message []byte) (number protowire.Number, value, rest []byte, err error) {
	number, t, size := protowire.ConsumeField(message)
	if size < 0 {
		return 0, nil, nil, protowire.ParseError(size)
	}
	if t == protowire.BytesType {
		value, _, _, _ = firstField(message, number)
	}
	return number, value, message[size:], nil
}
