"""Products: rows by a matrix, batches by batches, rows against rows, sums over the batch."""

import torch
import torch.nn.functional as F
from tests.runtime.cases import case, kept, table

PRODUCTS = {
    "a matrix": kept("s:b,4 P:4,3", lambda x, w: (x @ w, torch.mm(x, w), torch.matmul(x, w), x.matmul(w), x.mm(w))),
    "a vector": kept("s:b,4 P:4", lambda x, w: (x @ w, torch.mv(x, w), x.matmul(w))),
    "three dimensions": kept("s:b,3,4 P:4,2", lambda x, w: x @ w),
    "time first": kept("s:3,b,4@1 P:4,2", lambda x, w: x @ w),
    "a stack of matrices": kept("s:b,4 P:5,4,3", lambda x, w: x @ w),
    "from the left": case("P:3,b s:b,4", lambda w, x: (w @ x, w.matmul(x))),
    "from the left of columns": kept("P:3,4 s:4,b@1", lambda w, x: (w @ x, torch.mm(w, x))),
    "from the left of a batch": kept("P:3,4 s:b,4,2", lambda w, x: (w @ x, torch.matmul(w, x))),
    "from the left of vectors": case("P:4 s:4,b@1", lambda w, x: w @ x),
    "the vector is the batch": case("P:3,b s:b", lambda w, x: (w @ x, x @ x, torch.dot(x, x))),
    "batches": kept("s:b,2,4 s:b,4,3", lambda x, y: (x @ y, torch.bmm(x, y), x.bmm(y))),
    "batches by replicated ones": kept("s:b,2,4 P:b,4,3", lambda x, y: (x @ y, torch.bmm(x, y))),
    "replicated ones by batches": kept("P:b,2,4 s:b,4,3", lambda x, y: x @ y),
    "a batch of one is stretched": case("s:1,2,4 P:b,4,3", lambda x, y: x @ y),
    "a batch by one replicated": kept("s:b,2,4 P:1,4,3", lambda x, y: x @ y),
    "heads": kept("s:b,2,3,4 s:b,2,3,4", lambda q, k: (q @ k.transpose(-2, -1)).softmax(-1) @ k),
    "rows against rows": kept("s:b,4", lambda z: (z @ z.t(), torch.mm(z, z.T), z.matmul(z.transpose(0, 1)))),
    "rows against other rows": kept("s:b,4 s:b,4", lambda x, y: (x @ y.t(), x @ y.detach().T)),
    "rows against unequal rows": kept("s:b,4 s:5,4", lambda x, y: x @ y.t()),
    "over the batch": case("s:b,4 s:b,3", lambda x, y: (x.t() @ y, torch.mm(x.T, y), y.T.matmul(x))),
    "over the batch by a replicated one": case("s:b,4 P:b,3", lambda x, w: (x.t() @ w, w.T @ x)),
    "over the batch by itself": case("s:b,4", lambda x: (x.t() @ x / x.size(0), (x.T @ x).trace(), x.T @ x[:, 0])),
    "over the time and batch": case("s:b,3,4", lambda x: x.reshape(-1, 4).T @ x.reshape(-1, 4)),
    "gram matrices": kept("s:b,3,2,2", lambda x: (lambda f: f @ f.transpose(1, 2) / f.shape[-1])(x.flatten(2))),
    "linear": kept("s:b,4 P:3,4 P:3", lambda x, w, c: (F.linear(x, w, c), F.linear(x, w), F.linear(x, weight=w, bias=c))),
    "linear of more": kept("s:5,b,4@1 P:3,4 P:3", F.linear),
    "linear over the batch": case("s:4,b@1 P:3,b", lambda x, w: F.linear(x, w)),
    "bilinear": kept("s:b,4 s:b,3 P:2,4,3 P:2", F.bilinear),
    "addmm": kept("P:3 s:b,4 P:4,3", lambda c, x, w: (torch.addmm(c, x, w), torch.addmm(c, x, w, beta=0.5))[0]),
    "addmm with factors": case("P:3 s:b,4 P:4,3", lambda c, x, w: torch.addmm(c, x, w, beta=0.5, alpha=2)),
    "addmm of a batch": case("P:b,3 s:b,4 P:4,3", lambda c, x, w: (torch.addmm(c, x, w), torch.addmm(c + x.sum(), x, w))),
    "baddbmm": case("s:b,2,3 s:b,2,4 s:b,4,3", lambda c, x, y: (torch.baddbmm(c, x, y), torch.addbmm(c[0], x, y))),
    "outer": case("s:b P:3", lambda x, w: (torch.outer(x, w), torch.outer(w, x), x[:, None] * w)),
    "einsum": kept("s:b,4 P:4,3", lambda x, w: (torch.einsum("bi,ij->bj", x, w), torch.einsum("bi, ij -> jb", [x, w]))),
    "einsum of batches": kept("s:b,2,4 s:b,3,4", lambda x, y: (torch.einsum("bid,bjd->bij", x, y), torch.einsum("bid,bjd->ijb", x, y))),
    "einsum with a replicated batch": kept("s:b,4 P:b,4", lambda x, w: torch.einsum("bi,bi->b", x, w)),
    "einsum over the batch": case("s:b,4", lambda x: (torch.einsum("bi,bj->ij", x, x), torch.einsum("bi->i", x), torch.einsum("bi->", x))),
    "einsum of rows": case("s:b,4", lambda x: (torch.einsum("ik,jk->ij", x, x), torch.einsum("bi,bj", x, x), torch.einsum("...i->...", x))),
    "einsum of a diagonal": case("s:b,b", lambda x: (torch.einsum("bb->b", x), torch.einsum("bc->cb", x))),
    "einsum with the wrong rows": case("s:b,4 s:4,b@1", lambda x, y: torch.einsum("bi,ib->b", x, y)),
    "einsum stretched": case("s:b,4 P:1,4", lambda x, w: torch.einsum("bi,bi->bi", x, w)),
    "cdist": case("s:b,4 P:3,4", lambda x, w: (torch.cdist(x, w), torch.cdist(w, x), torch.cdist(x, w, p=1.0))),
    "cdist of rows": kept("s:b,4 s:b,4", lambda x, y: torch.cdist(x, y + 9)),
    "cdist of batches": case("s:b,3,4 s:b,2,4", lambda x, y: torch.cdist(x, y)),
    "chain": case("s:b,4 P:4,3", lambda x, w: (torch.linalg.multi_dot([x, w, w.t()]), torch.tensordot(x, w, 1), torch.inner(x, w.t()))),
    "kron": case("s:b,2 P:2,2", lambda x, w: torch.kron(x, w)),
    "covariance": case("s:b,4", lambda x: (torch.cov(x.t(), correction=0), torch.corrcoef(x) if x.size(0) > 1 else x)),
    "inverse of batches": case("s:b,3,3", lambda x: (torch.linalg.inv(x @ x.mT + 9 * torch.eye(3)), torch.linalg.det(x))),
    "attention": kept("s:b,2,3,4 s:b,2,5,4 s:b,2,5,4", lambda q, k, v: F.scaled_dot_product_attention(q, k, v)),
    "attention, causal": kept("s:b,2,3,4", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3)),
    "attention of one head": kept("s:b,3,4", lambda q: F.scaled_dot_product_attention(q, q, value=q)),
    "attention by a mask": kept("s:b,2,3,4 M:3,3", lambda q, m: F.scaled_dot_product_attention(q, q, q, m | torch.eye(3, dtype=torch.bool))),
    "attention by a mask of the batch": kept("s:b,2,3,4 n:b,1,3,3", lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m)),
    "attention by a replicated mask": kept("s:b,2,3,4 N:b,1,3,3", lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m)),
    "attention to the whole": case("s:b,2,3,4 P:b,2,5,4", lambda q, k: F.scaled_dot_product_attention(q, k, k)),
}  # fmt: skip


@table(PRODUCTS)
def test_products(case):
    case.run()
