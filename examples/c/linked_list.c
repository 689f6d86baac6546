/* Singly linked list: insert sorted, reverse, free; checked by assert. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct node {
    int value;
    struct node *next;
};

static void insert(struct node **head, int value)
{
    while (*head && (*head)->value < value) {
        head = &(*head)->next;
    }
    struct node *n = malloc(sizeof *n);
    assert(n);
    n->value = value;
    n->next = *head;
    *head = n;
}

static struct node *reverse(struct node *head)
{
    struct node *out = NULL;
    while (head) {
        struct node *next = head->next;
        head->next = out;
        out = head;
        head = next;
    }
    return out;
}

int main(void)
{
    struct node *list = NULL;
    for (int i = 0; i < 100; i++) {
        insert(&list, i * 37 % 101);
    }
    int n = 0;
    for (struct node *p = list; p; p = p->next, n++) {
        assert(!p->next || p->value <= p->next->value);
    }
    assert(n == 100);
    list = reverse(list);
    assert(list->value >= list->next->value);
    while (list) {
        struct node *next = list->next;
        free(list);
        list = next;
    }
    puts("list ok");
    return 0;
}
