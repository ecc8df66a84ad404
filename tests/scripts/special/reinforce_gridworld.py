"""REINFORCE on a hand-written corridor: episodes follow the current policy, so there is no batch to share out."""
import random

import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions import Categorical

random.seed(0)
torch.manual_seed(0)


class Corridor:
    """Start in the middle of seven cells; the right end pays 1, the left end pays 0. The floor slips."""

    def __init__(self, size=7, max_steps=20):
        self.size, self.max_steps = size, max_steps

    def reset(self):
        self.pos, self.t = self.size // 2, 0
        return self._obs()

    def _obs(self):
        obs = torch.zeros(self.size)
        obs[self.pos] = 1.0
        return obs

    def step(self, action):
        if random.random() < 0.1:
            action = 1 - action
        self.pos += 1 if action == 1 else -1
        self.t += 1
        done = self.pos in (0, self.size - 1) or self.t >= self.max_steps
        reward = 1.0 if self.pos == self.size - 1 else -0.01
        return self._obs(), reward, done


class Policy(nn.Module):
    def __init__(self, size=7):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(size, 16), nn.ReLU(), nn.Linear(16, 2))
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        return torch.softmax(self.net(x), dim=-1)


env = Corridor()
policy = Policy()
optimizer = optim.Adam(policy.parameters(), lr=3e-2)
gamma = 0.98
baseline = 0.0
running_reward = 0.0


def select_action(state):
    m = Categorical(policy(state.unsqueeze(0)))
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode():
    global baseline
    R = 0
    returns = []
    for r in policy.rewards[::-1]:
        R = r + gamma * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    loss = torch.cat([-lp * (ret - baseline) for lp, ret in zip(policy.saved_log_probs, returns)]).sum()
    baseline = 0.9 * baseline + 0.1 * returns[0].item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]


for i_episode in range(1, 81):
    state, ep_reward, done = env.reset(), 0, False
    while not done:
        action = select_action(state)
        state, reward, done = env.step(action)
        policy.rewards.append(reward)
        ep_reward += reward
    running_reward = 0.1 * ep_reward + 0.9 * running_reward
    finish_episode()
    if i_episode % 20 == 0:
        print("Episode {}\tLast reward: {:.2f}\tAverage reward: {:.2f}".format(i_episode, ep_reward, running_reward))
