package sample

import (
	"fmt"
	"testing"
)

func TestPasses(t *testing.T) { fmt.Println("seen on stdout") }
func TestFails(t *testing.T)  { t.Errorf("got %d, want %d", 2, 3) }
func TestSkipped(t *testing.T) {
	t.Skip("not today")
}
func TestGroup(t *testing.T) {
	t.Run("sub one", func(t *testing.T) {})
	t.Run("sub/two", func(t *testing.T) { t.Fatal("two broke") })
}
func TestParallelA(t *testing.T) { t.Parallel(); t.Log("a") }
func TestParallelB(t *testing.T) { t.Parallel(); t.Log("b") }
