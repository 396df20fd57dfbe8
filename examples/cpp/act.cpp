// Act by a policy that `policy.export("policy.ts")` wrote, without Python.
//
//   act policy.ts [STATES] < observations.txt
//
// Each line is an observation, numbers between spaces, and the numbers of its action are printed in a line. A recurrent
// policy takes the number of its states, "states" in the file's metadata; an empty line begins another episode.

#include <ATen/Parallel.h>
#include <torch/script.h>

#include <iostream>
#include <sstream>
#include <string>
#include <vector>

int main(int count, char** arguments) {
  if (count < 2 || count > 3) {
    std::cerr << "usage: act policy.ts [STATES] < observations.txt\n";
    return 2;
  }
  try {
    // Operations on small networks take less time in one thread.
    at::set_num_threads(1);
    const torch::InferenceMode without_gradients;
    torch::jit::ExtraFilesMap extra{{"metadata.json", ""}};
    torch::jit::Module policy = torch::jit::load(arguments[1], torch::kCPU, extra);
    std::cerr << extra["metadata.json"] << "\n";

    const int64_t size = count == 3 ? std::stoll(arguments[2]) : 0;
    at::Tensor states = torch::zeros({1, size});
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream text(line);
      std::vector<float> numbers;
      for (float number; text >> number;) numbers.push_back(number);
      if (numbers.empty()) {
        states.zero_();
        continue;
      }
      // A batch of one observation. Networks take the dtype of the observation space, here float32.
      at::Tensor observation = torch::tensor(numbers).unsqueeze(0);
      at::Tensor action;
      if (size == 0) {
        action = policy.forward({observation}).toTensor();
      } else {
        const auto outputs = policy.forward({observation, states}).toTuple();
        action = outputs->elements()[0].toTensor();
        states = outputs->elements()[1].toTensor().clone();
      }
      const at::Tensor flat = action.flatten().to(torch::kDouble);
      std::cout.precision(9);
      for (int64_t i = 0; i < flat.numel(); ++i) std::cout << (i ? " " : "") << flat[i].item<double>();
      std::cout << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << "act: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
