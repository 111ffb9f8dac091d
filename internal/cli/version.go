// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/internal/output"
)

// labelVersion is where a chart writes what it installs.
const labelVersion = "app.kubernetes.io/version"

func (a *factory) versionCommand() *cobra.Command {
	timeout := 10 * time.Second
	clientOnly := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say the versions of the plugin and of the operator",
		Example: "  kubectl skyhook version\n" +
			"  kubectl skyhook version --client-only",
		Args: output.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := a.CheckFormat(); err != nil {
				return err
			}
			value := map[string]string{"plugin": a.version}
			text := fmt.Sprintf("Skyhook plugin:\t%s\n", a.version)
			if !clientOnly {
				ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
				defer cancel()
				value["operator"] = a.operator(ctx)
				text += fmt.Sprintf("Skyhook operator:\t%s\n", value["operator"])
			}
			return a.Print(output.Answer{Value: value, Names: []string{a.version}, Text: func(bool) string { return text }})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "how long to look for the operator")
	cmd.Flags().BoolVar(&clientOnly, "client-only", false, "say the version of the plugin only")
	return cmd
}

// operator is the operator's version, or why it is not known.
func (a *factory) operator(ctx context.Context) string {
	c, err := a.newClient()
	if err != nil {
		return orUnknown("", err)
	}
	return orUnknown(a.operatorVersion(ctx, c))
}

// orUnknown is a version, or why it is not known.
func orUnknown(version string, err error) string {
	if err != nil {
		return fmt.Sprintf("unknown (%v)", err)
	}
	return version
}

// operatorVersion finds the operator among the deployments of its namespace.
func (a *factory) operatorVersion(ctx context.Context, c client.Reader) (string, error) {
	a.Note("listing the deployments of namespace %s", a.namespace())
	list := &appsv1.DeploymentList{}
	if err := c.List(ctx, list, client.InNamespace(a.namespace())); err != nil {
		return "", fmt.Errorf("listing deployments in namespace %s: %w", a.namespace(), err)
	}
	seen := false
	for i := range list.Items {
		d := &list.Items[i]
		images := operatorImages(d)
		if len(images) == 0 {
			continue
		}
		seen = true
		if v := d.Labels[labelVersion]; v != "" {
			return v, nil
		}
		for _, image := range images {
			image, _, _ = strings.Cut(image, "@")
			if tag, err := name.NewTag(image); err == nil && tag.TagStr() != name.DefaultTag {
				return tag.TagStr(), nil
			}
		}
	}
	if seen {
		return "", fmt.Errorf("the operator's deployment in namespace %s tells no version", a.namespace())
	}
	return "", errors.New("no operator in namespace " + a.namespace() + ": name its namespace with -n")
}

// operatorImages are the images of a deployment that is the operator's; none when it is not.
func operatorImages(d *appsv1.Deployment) []string {
	ours := false
	for key, value := range d.Labels {
		ours = ours || strings.Contains(key+"="+value, "skyhook")
	}
	var all []string
	for _, c := range d.Spec.Template.Spec.Containers {
		ours = ours || strings.Contains(c.Image, "skyhook")
		all = append(all, c.Image)
	}
	if !ours {
		return nil
	}
	return all
}
