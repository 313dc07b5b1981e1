package testenv_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/nsqio/go-nsq"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestEveryTestHasAMigratedDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	one, two := testenv.Database(t), testenv.Database(t)
	for _, statement := range []string{"CREATE TABLE mine (x int)", "SELECT count(*) FROM work_items"} {
		if _, err := one.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := two.Exec(t.Context(), "SELECT * FROM mine"); err == nil {
		t.Error("the second database has the table of the first")
	}
}

func TestEveryTestHasARedisDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	one, two := testenv.Redis(t), testenv.Redis(t)
	if err := one.Set(t.Context(), "key", "one", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := two.DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("the second database has %d keys, %v; want none", n, err)
	}
}

func TestS3TakesAndGivesOverTLS(t *testing.T) {
	t.Parallel()
	at := testenv.S3(t)
	client := at.Client(t)
	bucket := aws.String(at.Prefix + "bucket")
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.HeadBucket(t.Context(), &s3.HeadBucketInput{Bucket: bucket}); err != nil {
		t.Error(err)
	}
}

func TestStoppedNSQComesBackWithItsMessages(t *testing.T) {
	t.Parallel()
	n := testenv.NewNSQ(t)
	if shared := testenv.NSQ(t); shared.TCPAddr == n.TCPAddr {
		t.Fatal("the private nsqd is the shared one")
	}
	producer, err := nsq.NewProducer(n.TCPAddr, nsq.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	producer.SetLoggerLevel(nsq.LogLevelMax)
	t.Cleanup(producer.Stop)
	if err := producer.Publish("kept", []byte("1")); err != nil {
		t.Fatal(err)
	}
	n.Stop(t)
	if err := producer.Publish("kept", []byte("2")); err == nil {
		t.Error("a stopped nsqd took a message")
	}
	n.Start(t)
	resp, err := http.Get("http://" + n.HTTPAddr + "/stats?format=json&topic=kept")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	stats, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(stats), `"depth":1`) {
		t.Errorf("the topic is %s, %v; want a depth of 1", stats, err)
	}
}

func TestBinaryIsTheProgram(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), testenv.Binary(t), "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "farol") {
		t.Errorf("farol --help: %v\n%s", err, out)
	}
}

// A test that is killed has no time to tidy up; the next one does it.
func TestKilledTestLeavesNothingForLong(t *testing.T) {
	t.Parallel()
	killed := exec.Command(os.Args[0], "-test.run", "^TestHangs$")
	killed.Env = append(os.Environ(), "TESTENV_HANG=1", "FAROL_TEST_SERVERS=") // it has servers of its own
	out, err := killed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	ca := strings.TrimSpace(line)
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.Wait() //nolint:errcheck // it was killed
	next, err := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestCutProxy").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, next)
	}
	if _, err := os.Stat(ca); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the killed test is still there: %v", err)
	}
}

// TestHangs is the test that TestKilledTestLeavesNothingForLong kills; it
// passes at once when run with the others.
func TestHangs(t *testing.T) {
	if os.Getenv("TESTENV_HANG") == "" {
		return
	}
	fmt.Println(testenv.S3(t).CAFile)
	<-t.Context().Done()
}
