// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"cmp"
	"regexp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// FromDeployment reads the settings of the operator that a Deployment runs, as the operator itself does. node is where
// its leader runs; configMap gives the data of a ConfigMap in the Deployment's namespace. Values from Secrets count as
// not set. With an error, the options hold what could be read; an operator with such settings does not start.
func FromDeployment(d *appsv1.Deployment, node string, configMap func(name string) map[string]string) (*Options, error) {
	pod := &d.Spec.Template.Spec
	c := operatorContainer(pod)
	if c == nil {
		return Defaults(), nil
	}
	fields := map[string]string{
		"metadata.namespace": d.Namespace, "spec.nodeName": node, "spec.serviceAccountName": cmp.Or(pod.ServiceAccountName, "default"),
	}
	env := resolveEnv(c, fields, configMap)
	var args []string
	if len(c.Command) > 0 {
		args = slices.Clone(c.Command[1:])
	}
	args = append(args, c.Args...)
	for i := range args {
		args[i] = expandRefs(args[i], env)
	}
	return Parse(args, func(name string) (string, bool) { value, ok := env[name]; return value, ok })
}

// operatorContainer is the one named manager, as in every published manifest, or else the first.
func operatorContainer(pod *corev1.PodSpec) *corev1.Container {
	if len(pod.Containers) == 0 {
		return nil
	}
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "manager" })
	return &pod.Containers[max(i, 0)]
}

// resolveEnv resolves the environment variables of a container in the order in which a kubelet does.
func resolveEnv(c *corev1.Container, fields map[string]string, configMap func(string) map[string]string) map[string]string {
	env := map[string]string{}
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef == nil {
			continue
		}
		for key, value := range configMap(from.ConfigMapRef.Name) {
			env[from.Prefix+key] = value
		}
	}
	for _, e := range c.Env {
		value := expandRefs(e.Value, env)
		if from := e.ValueFrom; from != nil {
			switch {
			case from.FieldRef != nil:
				value = fields[from.FieldRef.FieldPath]
			case from.ConfigMapKeyRef != nil:
				value = configMap(from.ConfigMapKeyRef.Name)[from.ConfigMapKeyRef.Key]
			}
		}
		env[e.Name] = value
	}
	return env
}

var reference = regexp.MustCompile(`\$\$|\$\([-._a-zA-Z][-._a-zA-Z0-9]*\)`)

// expandRefs replaces $(NAME) by the value of a variable, as Kubernetes does. $$ is a dollar sign, and an unknown name stays.
func expandRefs(text string, env map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := env[found[2:len(found)-1]]; ok {
			return value
		}
		return found
	})
}
