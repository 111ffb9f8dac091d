// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/skyhook-k8s/skyhook/test/cluster/build"
	"github.com/skyhook-k8s/skyhook/test/cluster/registry"
	"github.com/skyhook-k8s/skyhook/test/cluster/testcluster"
)

func kubeconfigCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the cluster's kubeconfig",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := testcluster.Open(*name)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), c.Kubeconfig)
			return err
		},
	}
}

func kubectlCommand(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl [--name NAME] ARGUMENTS…",
		Short: "Run kubectl on the cluster",
		// The arguments are kubectl's, but for a leading --name.
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			args = leadingName(args, name)
			c, err := testcluster.Open(*name)
			if err != nil {
				return err
			}
			cache, err := build.Open(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			dir, err := cache.Kubernetes(cmd.Context())
			if err != nil {
				return err
			}
			argv := append([]string{"kubectl", "--kubeconfig", c.Kubeconfig}, args...)
			return become(filepath.Join(dir, "kubectl"), argv)
		},
	}
}

// leadingName takes --name NAME or --name=NAME from the front.
func leadingName(args []string, name *string) []string {
	if len(args) > 1 && args[0] == "--name" {
		*name = args[1]
		return args[2:]
	}
	if len(args) > 0 {
		if value, found := strings.CutPrefix(args[0], "--name="); found {
			*name = value
			return args[1:]
		}
	}
	return args
}

// become replaces this process, so that terminal, signals and exit status are the program's own.
func become(program string, argv []string) error {
	if err := syscall.Exec(program, argv, os.Environ()); err != nil {
		return fmt.Errorf("running %s: %w", argv[0], err)
	}
	return nil
}

func nodeCommand(name *string) *cobra.Command {
	group := &cobra.Command{Use: "node", Short: "Reach into a node, or for its switch"}
	group.AddCommand(&cobra.Command{
		Use:   "exec NODE [--] [COMMAND [ARGUMENTS…]]",
		Short: "Run a command on a node, as root of the host; a shell if none is given",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := testcluster.Open(*name)
			if err != nil {
				return err
			}
			if len(args) > 1 && args[1] == "--" {
				args = slices.Delete(args, 1, 2)
			}
			argv, err := c.CommandLine(cmd.Context(), args[0], args[1:]...)
			if err != nil {
				return err
			}
			program, err := exec.LookPath(argv[0])
			if err != nil {
				return fmt.Errorf("%w: apt-get install -y util-linux", err)
			}
			return become(program, argv)
		},
	})
	group.Commands()[0].Flags().SetInterspersed(false) // what follows the node belongs to the command
	for _, verb := range []struct {
		use, short string
		act        func(*testcluster.Cluster, *cobra.Command, string) error
	}{
		{"reboot", "Ask a node to reboot, as its administrator would", func(c *testcluster.Cluster, cmd *cobra.Command, node string) error {
			return c.Reboot(cmd.Context(), node)
		}},
		{"crash", "Cut a node's power; it stays off until it is started", func(c *testcluster.Cluster, cmd *cobra.Command, node string) error {
			return c.Crash(cmd.Context(), node)
		}},
		{"poweroff", "Shut a node down; it stays off until it is started", func(c *testcluster.Cluster, cmd *cobra.Command, node string) error {
			return c.Poweroff(cmd.Context(), node)
		}},
		{"start", "Switch a node on that is off", func(c *testcluster.Cluster, cmd *cobra.Command, node string) error {
			return c.Start(cmd.Context(), node)
		}},
	} {
		group.AddCommand(&cobra.Command{
			Use: verb.use + " NODE", Short: verb.short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				c, err := testcluster.Open(*name)
				if err != nil {
					return err
				}
				return verb.act(c, cmd, args[0])
			},
		})
	}
	return group
}

func imageCommand(name *string) *cobra.Command {
	group := &cobra.Command{Use: "image", Short: "Give the cluster images"}
	group.AddCommand(&cobra.Command{
		Use: "load FILE.tar", Short: "Put the images of an archive into every node", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := testcluster.Open(*name)
			if err != nil {
				return err
			}
			return c.LoadArchive(cmd.Context(), args[0])
		},
	})
	var credentials string
	push := &cobra.Command{
		Use: "push FILE.tar REF", Short: "Store an archive in the cluster's registry, under the name that manifests use; print its digest", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := testcluster.Open(*name)
			if err != nil {
				return err
			}
			if credentials != "" {
				private, err := privateRepository(args[1], credentials)
				if err != nil {
					return err
				}
				if err := c.Protect(cmd.Context(), private); err != nil {
					return err
				}
			}
			digest, err := c.PushArchive(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), digest)
			return err
		},
	}
	push.Flags().StringVar(&credentials, "credentials", "", "USER:PASSWORD that nodes need from now on to pull from this repository")
	group.AddCommand(push)
	return group
}

// privateRepository reads which repository an image is in, and the credentials it is to ask for.
func privateRepository(image, credentials string) (registry.Credentials, error) {
	user, password, found := strings.Cut(credentials, ":")
	if !found || user == "" || password == "" {
		return registry.Credentials{}, fmt.Errorf("--credentials %q: write USER:PASSWORD", credentials)
	}
	repository, err := registry.Repository(image)
	if err != nil {
		return registry.Credentials{}, err
	}
	return registry.Credentials{Repository: repository, User: user, Password: password}, nil
}
