package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// nginx answers every request with the same redirect, from its configuration: what a redirect costs without a look-up, a
// click or a query. One worker.
type nginx struct {
	*process
	addr string
	cpu  cpuMeter
	dir  string
	name string // with its version
}

const nginxConfig = `daemon off; worker_processes 1; pid %[1]s/pid; error_log %[1]s/error.log;
events { worker_connections 1024; }
http {
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
  server {
    listen %[2]s;
    location / {
      return 302 https://example.com/landing/1?utm_source=bench&id=1;
      add_header Cache-Control "private, no-cache, no-store, must-revalidate";
    }
  }
}
`

const nginxWithin = 10 * time.Second

// startNginx starts an nginx of our own; when there is none, or it does not start, why says so.
func startNginx(ctx context.Context, parent string) (n *nginx, why string, err error) {
	binary := findNginx()
	if binary == "" {
		return nil, "nginx is not installed: there is no ratio to it", nil
	}
	dir, err := os.MkdirTemp(parent, "hoplog-nginx-")
	if err != nil {
		return nil, "", fmt.Errorf("starting nginx: %w", err)
	}
	n = &nginx{dir: dir, name: nginxName(ctx, binary)}
	if err := n.start(ctx, binary); err != nil {
		return nil, fmt.Sprintf("nginx did not start, there is no ratio to it: %v", errors.Join(err, n.stop())), ctx.Err()
	}
	return n, "", nil
}

// findNginx looks where packages put it, too: /usr/sbin is not on everybody's path.
func findNginx() string {
	for _, name := range []string{"nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// nginxName asks a binary for its version, which the distribution chooses: "nginx/1.22.1".
func nginxName(ctx context.Context, binary string) string {
	said, err := exec.CommandContext(ctx, binary, "-v").CombinedOutput()
	if _, version, found := strings.Cut(string(said), "nginx/"); found && err == nil {
		return "nginx/" + strings.TrimSpace(version)
	}
	return "nginx"
}

func (n *nginx) start(ctx context.Context, binary string) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	n.addr = ports[0]
	config := filepath.Join(n.dir, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, n.dir, n.addr), 0o600); err != nil {
		return err
	}
	if n.process, err = launch(exec.Command(binary, "-c", config, "-p", n.dir), filepath.Join(n.dir, "output")); err != nil {
		return err
	}
	for began := time.Now(); ; {
		conn, err := net.Dial("tcp", n.addr)
		if err == nil {
			conn.Close()
		}
		// The master answers nothing: what is measured is its worker.
		if worker := childOf(n.pid()); err == nil && worker != 0 {
			n.cpu = cpuOfPID(worker)
			return nil
		}
		select {
		case <-n.ended:
			return fmt.Errorf("it ended: %s", n.lastWords())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(readyPoll):
		}
		if time.Since(began) > nginxWithin {
			return fmt.Errorf("no answer within %v: %s", nginxWithin, n.lastWords())
		}
	}
}

func (n *nginx) stop() error {
	var err error
	if n.process != nil {
		err = n.process.stop()
	}
	return errors.Join(err, os.RemoveAll(n.dir))
}
